/* ddrun-web: sends the POST requests of its agent (or daemon), one at a time, and exits when the
 * connection to its parent closes. It is the only program that loads libcurl and the thirty
 * libraries that libcurl needs. ddrun-web --check tests whether libcurl is available and prints the
 * reason if not. */
#include "base/buf.h"
#include "base/library.h"
#include "web/web_wire.h"

/* libcurl's type-checking macros have the names of functions and break calls of `libcurl.NAME`. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECT_MS = 2000 };

#define LIBCURL_FUNCTIONS(X)                                                                       \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_init)                                                                              \
    X(curl_easy_perform)                                                                           \
    X(curl_easy_reset)                                                                             \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_strerror)                                                                          \
    X(curl_global_init)                                                                            \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

static struct libcurl {
    LIBCURL_FUNCTIONS(DD_LIBRARY_FIELD)
} libcurl; /* global, like the functions of a linked library */

static int ddrun_web_load(struct dd_err *err)
{
#define ROW(function) DD_LIBRARY_ROW(struct libcurl, function),
    static const struct dd_library_row rows[] = {LIBCURL_FUNCTIONS(ROW)};
    return dd_library_load(&libcurl, "libcurl.so.4", rows, sizeof(rows) / sizeof(rows[0]), err);
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    return dd_buf_append(arg, data, size * n) == 0 ? size * n : 0;
}

static void set_protocols(CURL *c)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    /* the library that is loaded may be older than the header */
    if (libcurl.curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK)
        return;
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    (void)libcurl.curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#pragma GCC diagnostic pop
}

static void set_tls(CURL *c, const struct web_request *r)
{
    if (r->cacert != NULL)
        (void)libcurl.curl_easy_setopt(c, CURLOPT_CAINFO, r->cacert);
    if (r->cert != NULL)
        (void)libcurl.curl_easy_setopt(c, CURLOPT_SSLCERT, r->cert);
    if (r->key != NULL)
        (void)libcurl.curl_easy_setopt(c, CURLOPT_SSLKEY, r->key);
    (void)libcurl.curl_easy_setopt(
        c, CURLOPT_KEYPASSWD,
        ""); /* else OpenSSL prompts for a pass phrase on the user's terminal */
}

static void set_up(CURL *c, const struct web_request *r, struct curl_slist *headers)
{
    const long limit = (long)r->limit_ms;
    libcurl.curl_easy_reset(c); /* keeps connections open */
    set_protocols(c);
    set_tls(c, r);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, limit);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                                   limit < CONNECT_MS ? limit : CONNECT_MS);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_USERAGENT, "ddrun");
    (void)libcurl.curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)strlen(r->body));
    if (r->direct)
        (void)libcurl.curl_easy_setopt(c, CURLOPT_PROXY, "");
}

/* True if the server has refused our certificate. The alerts arrive after the handshake, during a
 * send or receive, so libcurl may return any code; compare OpenSSL's texts for the alerts of
 * RFC 8446, 6.2. */
static bool is_our_certificate_refused(const char *error)
{
    const char *alert = strstr(error, " alert ");
    return alert != NULL &&
           (strstr(alert, "certificate") != NULL || strstr(alert, "unknown ca") != NULL);
}

/* True for errors that a retry does not fix. */
static bool is_set_up_wrong(CURLcode rc)
{
    return rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CERTPROBLEM ||
           rc == CURLE_SSL_CACERT_BADFILE || rc == CURLE_URL_MALFORMAT ||
           rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_SSL_CIPHER;
}

/* True if a status was received, but not the whole body. That is sufficient for a web hook; for
 * etcd the incomplete JSON is an error. */
static bool is_cut(CURLcode rc)
{
    return rc == CURLE_WRITE_ERROR || rc == CURLE_PARTIAL_FILE || rc == CURLE_OPERATION_TIMEDOUT ||
           rc == CURLE_RECV_ERROR;
}

/* Send one POST. True: there is an answer. */
static bool post(CURL *c, const char *url, struct web_answer *a, struct dd_buf *body,
                 char error[CURL_ERROR_SIZE])
{
    long status = 0;
    dd_buf_clear(body);
    error[0] = '\0';
    (void)libcurl.curl_easy_setopt(c, CURLOPT_URL, url);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_WRITEDATA, body);
    (void)libcurl.curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    const CURLcode rc = libcurl.curl_easy_perform(c);
    (void)libcurl.curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    if ((rc == CURLE_OK && status > 0) || (is_cut(rc) && status >= 200)) {
        a->status = (int)(status < 999 ? status : 999);
        return true;
    }
    const bool refused = rc != CURLE_OK && is_our_certificate_refused(error);
    a->set_up = refused || is_set_up_wrong(rc);
    if (refused) /* libcurl's text has no further details */
        (void)snprintf(
            error, CURL_ERROR_SIZE,
            "the server refused the client certificate, or requires one (cert=FILE, key=FILE)");
    else if (error[0] == '\0')
        (void)snprintf(error, CURL_ERROR_SIZE, "%s", libcurl.curl_easy_strerror(rc));
    return false;
}

static struct curl_slist *headers_of(const struct web_request *r)
{
    struct curl_slist *list = libcurl.curl_slist_append(NULL, "Content-Type: application/json");
    list = libcurl.curl_slist_append(list, "Expect:");
    for (size_t i = 0; r->headers[i] != NULL; i++)
        list = libcurl.curl_slist_append(list, r->headers[i]);
    return list;
}

static int ddrun_web_answer(const struct web_answer *a)
{
    DD_AUTO(free) char *text = NULL;
    const int rc = web_answer_encode(&text, a);
    const struct web_answer no_text = {.status = a->status,
                                       .from = a->from,
                                       .error = rc == -EMSGSIZE ? "the reply is too long"
                                                                : "the reply is not UTF-8 text"};
    if (rc < 0 && web_answer_encode(&text, &no_text) < 0)
        return -1;
    return send(WEB_FD, text, strlen(text), MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int ddrun_web_serve(CURL *c, const struct web_request *r)
{
    DD_AUTO(buf) struct dd_buf body = DD_BUF_INIT(WEB_BODY_MAX);
    char error[CURL_ERROR_SIZE] = "";
    struct web_answer a = {0};
    struct curl_slist *headers = headers_of(r);
    set_up(c, r, headers);
    for (a.from = 0; r->urls[a.from] != NULL; a.from++)
        if (post(c, r->urls[a.from], &a, &body, error))
            break;
    libcurl.curl_slist_free_all(headers);
    if (a.status == 0)
        a.from = 0;
    a.error = a.status == 0 ? error : NULL;
    a.body = a.status != 0 ? dd_buf_str(&body) : NULL;
    return ddrun_web_answer(&a);
}

int main(int argc, char **argv)
{
    static char packet[WEB_PACKET_MAX];
    struct dd_err err = {0};
    int type = 0;
    socklen_t len = sizeof(type);
    if (ddrun_web_load(&err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return 0;
    if (getsockopt(WEB_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "ddrun-web is a helper that ddrun starts for etcd and web hooks\n");
        return 2;
    }
    (void)libcurl.curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *c = libcurl.curl_easy_init();
    ssize_t n = 0;
    int rc = c != NULL ? 0 : -1;
    while (rc == 0 &&
           ((n = recv(WEB_FD, packet, sizeof(packet), 0)) > 0 || (n < 0 && errno == EINTR))) {
        struct web_asked asked;
        if (n < 0)
            continue;
        rc = web_request_decode(&asked, packet, (size_t)n);
        if (rc < 0)
            break;
        rc = ddrun_web_serve(c, &asked.request);
        web_asked_done(&asked);
    }
    return rc < 0;
}
