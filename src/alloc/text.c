/* Texts of allocations: host lists and --nnodes for messages, values of variables, HOST:PORT. */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *alloc_show(struct alloc_shown *s, const struct hostlist *nodes)
{
    static const char dots[] = "...";
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(64U << 20);
    const char *text = hostlist_fold(nodes, &b) == 0 ? dd_buf_str(&b) : NULL;
    int n = snprintf(s->text, sizeof(s->text), "%s", text != NULL ? text : "?");
    if (n >= (int)sizeof(s->text))
        memcpy(s->text + sizeof(s->text) - sizeof(dots), dots, sizeof(dots));
    return s->text;
}

const char *alloc_show_nnodes(char text[ALLOC_NNODES], const struct alloc_input *in)
{
    int n = snprintf(text, ALLOC_NNODES, "%d", in->min_nodes);
    if (in->max_nodes > in->min_nodes)
        (void)snprintf(text + n, ALLOC_NNODES - (size_t)n, ":%d", in->max_nodes);
    return text;
}

int alloc_check_nnodes(const struct hostlist *nodes, int n, const char *source,
                       const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_shown shown;
    char said[ALLOC_NNODES];
    char more[80] = "";
    if (alloc_permits(in, n))
        return 0;
    if (n > in->max_nodes)
        (void)snprintf(more, sizeof(more), ", use --nnodes=%d:%d to keep spare nodes",
                       in->max_nodes, in->max_nodes);
    else if (strcmp(source, "pbs") == 0) /* PBS may place several chunks on a host */
        (void)snprintf(more, sizeof(more), ", request the nodes with -l place=scatter");
    return dd_err_set(err, -EINVAL,
                      "--nnodes=%s contradicts the %d node%s of this job (%s, source: %s)"
                      "\n  tip: omit --nnodes%s, or use --nnodes=1 for this node alone",
                      alloc_show_nnodes(said, in), n, n == 1 ? "" : "s", alloc_show(&shown, nodes),
                      source, more);
}

int alloc_set(char **to, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -ENOMEM;
    free(*to);
    *to = text;
    return 0;
}

bool alloc_id_ok(const char *text)
{
    size_t n = 0;
    while (text[n] != '\0' && n <= 200 &&
           (isalnum((unsigned char)text[n]) || strchr(".-_[]:+", text[n]) != NULL))
        n++;
    return n > 0 && n <= 200 && text[n] == '\0';
}

bool alloc_own_is(char *const *env, const char *name, char ret[ALLOC_ID_SIZE])
{
    const char *id = dd_env_get_nonempty(env, name);
    return id != NULL && alloc_id_ok(id) && snprintf(ret, ALLOC_ID_SIZE, "%s", id) < ALLOC_ID_SIZE;
}

uint64_t alloc_hash(const char *text) /* FNV-1a */
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

int alloc_add_command(struct alloc *a, const struct alloc_input *in)
{
    uint64_t h = 0;
    if (in->command == NULL || in->rdzv_id != NULL)
        return 0;
    for (char *const *word = in->command; *word != NULL; word++)
        h = h * UINT64_C(1099511628211) ^ alloc_hash(*word); /* depends on the order */
    DD_AUTO(free) char *id = DD_TAKE(a->requeue_id);
    return alloc_set(&a->requeue_id, "%s.%016" PRIx64, id, h);
}

int alloc_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory while finding the nodes of the job");
}

int alloc_env_int(const struct alloc_input *in, const char *name, int min, int max, int *ret,
                  struct dd_err *err)
{
    const char *text = dd_env_get_nonempty(in->env, name);
    if (text == NULL)
        return 0;
    if (dd_num_int(text, min, max, ret) < 0)
        return dd_err_set(err, -EINVAL, "%s=%.80s is not a number from %d to %d", name, text, min,
                          max);
    return 1;
}

static int bad_hostport(const char *text, struct dd_err *err)
{
    const char *at = strrchr(text, '@'); /* do not show what may be a password */
    return dd_err_set(
        err, -EINVAL,
        "invalid endpoint '%s%.200s': expected HOST or HOST:PORT, such as node1:29400 or "
        "[fe80::1]:29400",
        at != NULL ? "..." : "", at != NULL ? at : text);
}

int alloc_hostport_parse(struct alloc_hostport *ret, const char *text, struct dd_err *err)
{
    struct alloc_hostport hp = {.port = -1};
    const char *host = text;
    const char *port = strchr(text, ':');
    size_t n = strcspn(text, ":");
    if (*text == '[') {
        host = text + 1;
        n = strcspn(host, "]");
        if (host[n] != ']' || (host[n + 1] != '\0' && host[n + 1] != ':'))
            return bad_hostport(text, err);
        port = host[n + 1] == ':' ? host + n + 1 : NULL;
    } else if (port != NULL && strchr(port + 1, ':') != NULL) { /* a bare IPv6 address */
        n = strlen(text);
        port = NULL;
    }
    if (n == 0 || n >= sizeof(hp.host))
        return bad_hostport(text, err);
    memcpy(hp.host, host, n);
    hp.host[n] = '\0';
    char plain[sizeof(hp.host)];
    memcpy(plain, hp.host, n + 1);
    plain[strcspn(plain, "%")] = '\0'; /* the zone of a link-local address */
    if (!hostlist_name_ok(plain) || (port != NULL && dd_num_int(port + 1, 0, 65535, &hp.port) < 0))
        return bad_hostport(text, err);
    *ret = hp;
    return 0;
}
