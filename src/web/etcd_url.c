#include "web/etcd_url.h"

#include "base/num.h"
#include "base/utf8.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ETCD_PORT = 2379 };

static const char plain[] = "etcd://";
static const char secure[] = "etcds://";

bool etcd_url_is(const char *text)
{
    return text != NULL && (strncmp(text, plain, sizeof(plain) - 1) == 0 ||
                            strncmp(text, secure, sizeof(secure) - 1) == 0);
}

void etcd_url_done(struct etcd_url *u)
{
    char **const texts[] = {&u->prefix, &u->user, &u->password, &u->password_file,
                            &u->cacert, &u->cert, &u->key};
    if (u->password != NULL)
        explicit_bzero(u->password, strlen(u->password));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
    dd_strv_done(&u->bases);
}

static int etcd_url_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory for the etcd URL");
}

/* Decode %XX in the n bytes at p; the result must be UTF-8 without control characters, since it is
 * put into JSON. */
static int etcd_url_decode(char **ret, const char *p, size_t n, const char *what,
                           struct dd_err *err)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    char *out = malloc(n + 1);
    size_t len = 0;
    if (out == NULL)
        return etcd_url_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '%' && i + 2 < n && strchr(digits, p[i + 1]) != NULL &&
            strchr(digits, p[i + 2]) != NULL) {
            const char pair[] = {p[i + 1], p[i + 2], '\0'};
            c = (char)strtoul(pair, NULL, 16);
            i += 2;
        }
        if ((unsigned char)c < ' ' || c == '\x7f') {
            free(out);
            return dd_err_set(err, -EINVAL, "control character in the %s", what);
        }
        out[len++] = c;
    }
    out[len] = '\0';
    if (!dd_utf8_is(out)) {
        free(out);
        return dd_err_set(err, -EINVAL, "the %s is not UTF-8", what);
    }
    free(*ret);
    *ret = out;
    return 0;
}

/* Report a missing host; do not show text that may be part of a password. */
static int no_host(const char *p, size_t n, struct dd_err *err)
{
    if (strchr(p + n, '@') != NULL)
        return dd_err_set(
            err, -EINVAL,
            "missing HOST or HOST:PORT before the first '/' or '?' (in a password, escape them "
            "as %%2F and %%3F)");
    return dd_err_set(
        err, -EINVAL,
        "invalid etcd address '%.*s': expected HOST or HOST:PORT, several separated by commas",
        (int)(n < 100 ? n : 100), p);
}

/* Add "HOST", "HOST:PORT" or "[v6]:PORT". */
static int add_host(struct etcd_url *u, const char *scheme, const char *p, size_t n,
                    struct dd_err *err)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (u->bases.n == ETCD_HOSTS_MAX)
        return dd_err_set(err, -EINVAL, "more than %d etcd addresses", ETCD_HOSTS_MAX);
    const bool v6 = n > 0 && *p == '[';
    const char *close = v6 ? memchr(p, ']', n) : NULL;
    const char *end = v6 ? close : memchr(p, ':', n); /* end of the host name */
    const size_t host = end != NULL ? (size_t)(end - p) + v6 : v6 ? 0 : n;
    char port_text[8] = "";
    int port = ETCD_PORT;
    bool ok = host > 0 && host <= n && host < 256;
    ok = ok && (v6 ? strspn(p + 1, "0123456789abcdefABCDEF:.") == host - 2 && host > 3
                   : strspn(p, good) >= host);
    if (ok && host < n)
        ok = p[host] == ':' && n - host - 1 < sizeof(port_text) && n - host > 1;
    if (ok && host < n) {
        memcpy(port_text, p + host + 1, n - host - 1);
        ok = dd_num_int(port_text, 1, 65535, &port) == 0;
    }
    if (!ok)
        return no_host(p, n, err);
    return dd_strv_pushf(&u->bases, "%s://%.*s:%d", scheme, (int)host, p, port) < 0
               ? etcd_url_no_memory(err)
               : 0;
}

static int add_hosts(struct etcd_url *u, const char *scheme, const char *p, size_t n,
                     struct dd_err *err)
{
    int rc = 0;
    for (size_t at = 0; rc == 0;) {
        const char *comma = memchr(p + at, ',', n - at);
        const size_t len = comma != NULL ? (size_t)(comma - p) - at : n - at;
        rc = add_host(u, scheme, p + at, len, err);
        if (comma == NULL)
            break;
        at += len + 1;
    }
    return rc;
}

static int take_user(struct etcd_url *u, const char *p, size_t n, struct dd_err *err)
{
    const char *colon = memchr(p, ':', n);
    const size_t name = colon != NULL ? (size_t)(colon - p) : n;
    int rc = etcd_url_decode(&u->user, p, name, "user's name", err);
    if (rc == 0 && colon != NULL)
        rc = etcd_url_decode(&u->password, colon + 1, n - name - 1, "password", err);
    if (rc == 0 && u->user[0] == '\0')
        rc = dd_err_set(err, -EINVAL, "missing user name before '@'");
    return rc;
}

/* Parameters after '?'. */
static const struct setting {
    const char *name;
    size_t offset;
    bool tls;
} settings[] = {
    {"cacert", offsetof(struct etcd_url, cacert), true},
    {"cert", offsetof(struct etcd_url, cert), true},
    {"key", offsetof(struct etcd_url, key), true},
    {"password-file", offsetof(struct etcd_url, password_file), false},
};

static int take_setting(struct etcd_url *u, const char *p, size_t n, bool tls, struct dd_err *err)
{
    const char *equal = memchr(p, '=', n);
    const size_t len = equal != NULL ? (size_t)(equal - p) : n;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && len + 1 < n; i++) {
        const struct setting *s = &settings[i];
        if (strlen(s->name) != len || memcmp(s->name, p, len) != 0)
            continue;
        if (s->tls && !tls)
            return dd_err_set(err, -EINVAL, "'%s' needs TLS\n  tip: use etcds://", s->name);
        char *value = NULL;
        int rc = etcd_url_decode(&value, p + len + 1, n - len - 1, s->name, err);
        if (rc == 0) {
            char **to = (char **)(void *)((char *)u + s->offset);
            free(*to);
            *to = value;
        }
        return rc;
    }
    const int shown = memchr(p, '@', n) != NULL
                          ? 0
                          : (int)(len < 60 ? len : 60); /* the text may be part of a password */
    return dd_err_set(err, -EINVAL,
                      "invalid parameter '%.*s': expected cacert=FILE, cert=FILE, key=FILE or "
                      "password-file=FILE",
                      shown, p);
}

static int take_settings(struct etcd_url *u, const char *p, bool tls, struct dd_err *err)
{
    int rc = 0;
    while (*p != '\0' && rc == 0) {
        const size_t n = strcspn(p, "&");
        rc = n > 0 ? take_setting(u, p, n, tls, err) : 0;
        p += n + (p[n] == '&');
    }
    if (rc == 0 && (u->cert == NULL) != (u->key == NULL))
        rc = dd_err_set(err, -EINVAL, "cert=FILE and key=FILE must be given together");
    if (rc == 0 && u->password_file != NULL && u->user == NULL)
        rc = dd_err_set(err, -EINVAL, "password-file=FILE needs a user: etcd://USER@HOST");
    return rc;
}

/* "/a/b/" equals "/a/b"; "" is "/ddrun". */
static int take_prefix(struct etcd_url *u, const char *p, size_t n, struct dd_err *err)
{
    while (n > 0 && p[n - 1] == '/')
        n--;
    return n == 0 ? etcd_url_decode(&u->prefix, "/ddrun", 6, "prefix", err)
                  : etcd_url_decode(&u->prefix, p, n, "prefix", err);
}

static int etcd_url_parse_parts(struct etcd_url *u, const char *text, struct dd_err *err)
{
    const bool tls = strncmp(text, secure, sizeof(secure) - 1) == 0;
    const char *p = text + (tls ? sizeof(secure) : sizeof(plain)) - 1;
    size_t n = strcspn(p, "/?");
    const char *at = memrchr(p, '@', n);
    int rc = 0;
    if (at != NULL) {
        rc = take_user(u, p, (size_t)(at - p), err);
        n -= (size_t)(at + 1 - p);
        p = at + 1;
    }
    if (rc == 0)
        rc = add_hosts(u, tls ? "https" : "http", p, n, err);
    p += n;
    n = strcspn(p, "?");
    if (rc == 0)
        rc = take_prefix(u, p, n, err);
    return rc == 0 && p[n] == '?' ? take_settings(u, p + n + 1, tls, err) : rc;
}

int etcd_url_parse(struct etcd_url *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(etcd_url) struct etcd_url u = {0};
    if (!etcd_url_is(text) || strlen(text) > ETCD_TEXT_MAX)
        return dd_err_set(
            err, -EINVAL,
            "invalid etcd URL: expected etcd://HOST:PORT/PREFIX of at most %d characters",
            ETCD_TEXT_MAX);
    int rc = etcd_url_parse_parts(&u, text, err);
    if (rc < 0)
        return rc;
    *ret = u;
    u = (struct etcd_url){0};
    return 0;
}
