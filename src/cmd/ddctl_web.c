/* ddctl web: serve a page that shows a running job, on loopback, to the user's own browser.
 *
 * libevent's evhttp reads requests. For each connection it calls web_on_connection(), before the
 * bufferevent has its descriptor. The event that this callback activates runs before any data is
 * read. If another user owns the connection and its descriptor is FOREIGN_FDS or above, the event
 * shuts the connection down, so that other users occupy few descriptors. Other users with lower
 * descriptors get a refusal as the reply to a complete request. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "cmd/ddctl_web_files.h"
#include "cmd/ddctl_web_guard.h"
#include "cmd/ddctl_web_log.h"
#include "cmd/ddctl_web_state.h"
#include "config.h"
#include "net/listen.h"
#include "net/loop.h"
#include "net/peer_uid.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    HEADER_MAX = 8192,
    REQUEST_S = 30, /* limit for a silent connection; the page asks every second */
    TIMELINE_MAX = 1 << 30,
    PORT_ATTEMPTS = 16,
    FOREIGN_FDS = 64, /* connections of other users are shut down from this descriptor on */
    PAUSE_MS = 100,   /* pause if no file descriptor is free */
};

struct web_options {
    const char *job, *timeline;
    int port;
    uint64_t idle_ns;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct web_options),
    {.name = "port",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .min = 0,
     .max = 65535,
     .no_env = true,
     .example = "8080",
     .group = "Page",
     .help = "port on 127.0.0.1 and ::1; 0: any free port",
     OPT_FIELD(struct web_options, port)},
    {.name = "timeline",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .no_env = true,
     .example = "trace.json",
     .group = "Page",
     .help = "offer this file of 'ddrun --timeline' on the page",
     OPT_FIELD(struct web_options, timeline)},
    {.name = "idle-limit",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "10m",
     .no_env = true,
     .group = "Page",
     .help = "exit after TIME without a request",
     .more = "An open page sends a request every second until the job has ended.",
     OPT_FIELD(struct web_options, idle_ns)},
};

const struct opt_table ddctl_web_options = {
    .program = "ddctl web",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Serves a page that shows a running job: its ranks, restarts, failures, store and "
             "events. Prints the address, which is for your own browser on this machine.",
    OPT_ROWS(rows),
};

struct web {
    struct web_options o;
    struct dd_log log;
    struct event_base *base;
    struct evhttp *http;
    struct net_peer *peer;
    struct web_state *state;
    struct web_logs *logs;
    struct event *idle, *signals[2];
    struct evhttp_bound_socket *listeners[2]; /* 127.0.0.1 and ::1; NULL: no IPv6 */
    uint16_t port;
    char token[WEB_TOKEN + 1];
};

/* ---- replies ---- */

static void web_add_headers(struct evhttp_request *r, const char *type)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"}, /* the address has the token */
        {"X-Content-Type-Options", "nosniff"},
    };
    struct evkeyvalq *out = evhttp_request_get_output_headers(r);
    (void)evhttp_add_header(out, "Content-Type", type);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        (void)evhttp_add_header(out, headers[i][0], headers[i][1]);
}

static void web_reply(struct evhttp_request *r, const char *type, const void *data, size_t len)
{
    web_add_headers(r, type);
    if (evbuffer_add(evhttp_request_get_output_buffer(r), data, len) < 0)
        evhttp_send_error(r, HTTP_INTERNAL, NULL);
    else
        evhttp_send_reply(r, HTTP_OK, "OK", NULL);
}

static void web_refuse(struct evhttp_request *r, int code, const char *why)
{
    web_add_headers(r, "text/plain; charset=utf-8");
    (void)evhttp_add_header(evhttp_request_get_output_headers(r), "Connection", "close");
    (void)evbuffer_add_printf(evhttp_request_get_output_buffer(r), "%s\n", why);
    evhttp_send_reply(r, code,
                      code == WEB_FORBIDDEN   ? "Forbidden"
                      : code == WEB_NOT_FOUND ? "Not Found"
                                              : "Service Unavailable",
                      NULL);
}

static void web_reply_state(struct web *w, struct evhttp_request *r)
{
    DD_AUTO(free) char *text = web_state_json(w->state, w->o.timeline != NULL);
    if (text != NULL)
        web_reply(r, "application/json", text, strlen(text));
    else
        evhttp_send_error(r, HTTP_INTERNAL, NULL);
}

static void web_reply_timeline(const struct web *w, struct evhttp_request *r)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TIMELINE_MAX);
    struct dd_err err = {0};
    if (w->o.timeline == NULL)
        web_refuse(r, WEB_NOT_FOUND, "ddctl web was started without --timeline.");
    else if (dd_read_file(w->o.timeline, &text, &err) < 0)
        web_refuse(r, WEB_NOT_FOUND, err.text);
    else
        web_reply(r, "application/json", text.data, text.len);
}

static void web_on_log(void *arg, const char *text)
{
    if (text != NULL)
        web_reply(arg, "application/json", text, strlen(text));
    else
        evhttp_send_error(arg, HTTP_INTERNAL, NULL);
}

/* evhttp reads nothing from the connection until the reply, so the request remains valid even if
 * the browser has gone. */
static void web_reply_log(const struct web *w, struct evhttp_request *r, int rank)
{
    struct dd_err err = {0};
    if (web_logs_ask(w->logs, rank, web_on_log, r, &err) < 0)
        web_refuse(r, HTTP_SERVUNAVAIL, err.text);
}

/* ---- requests ---- */

static bool web_is_own(const struct web *w, struct evhttp_request *r)
{
    uid_t other;
    struct evhttp_connection *c = evhttp_request_get_connection(r);
    const int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(c));
    return net_peer_own_fd(w->peer, fd, &other) == 0;
}

struct web_arrival {
    struct web *web;
    struct bufferevent *connection; /* a reference */
};

static void web_on_arrival(evutil_socket_t none, short what, void *arg)
{
    uid_t other;
    struct web_arrival *a = arg;
    const int fd = bufferevent_getfd(a->connection);
    (void)none;
    (void)what;
    if (fd >= FOREIGN_FDS && net_peer_own_fd(a->web->peer, fd, &other) != 0)
        (void)shutdown(fd, SHUT_RDWR);
    bufferevent_decref(a->connection);
    free(a);
}

/* Without memory, the connection is judged only when its request is complete. */
static struct bufferevent *web_on_connection(struct event_base *base, void *arg)
{
    const struct timeval now = {0};
    struct bufferevent *b = bufferevent_socket_new(base, -1, 0);
    struct web_arrival *a = b != NULL ? malloc(sizeof(*a)) : NULL;
    if (a == NULL)
        return b;
    *a = (struct web_arrival){.web = arg, .connection = b};
    if (event_base_once(base, -1, EV_TIMEOUT, web_on_arrival, a, &now) == 0)
        bufferevent_incref(b);
    else
        free(a);
    return b;
}

static void web_answer(struct web *w, struct evhttp_request *r, int what, int rank)
{
    static const struct web_file *const files[WEB_RESOURCES] = {
        [WEB_PAGE] = &web_file_html, [WEB_SCRIPT] = &web_file_js, [WEB_STYLE] = &web_file_css};
    const struct timeval idle = dd_timeval(w->o.idle_ns);
    (void)evtimer_add(w->idle, &idle);
    if (what == WEB_STATE)
        web_reply_state(w, r);
    else if (what == WEB_TIMELINE)
        web_reply_timeline(w, r);
    else if (what == WEB_LOG)
        web_reply_log(w, r, rank);
    else
        web_reply(r, files[what]->type, files[what]->data, files[what]->len);
}

static void web_on_request(struct evhttp_request *r, void *arg)
{
    struct web *w = arg;
    const char *host = evhttp_find_header(evhttp_request_get_input_headers(r), "Host");
    int rank;
    const int what = web_route(evhttp_request_get_uri(r), host, w->token, &rank);
    if (!web_is_own(w, r))
        web_refuse(r, WEB_FORBIDDEN, "Only the user of this ddctl web may open the page.");
    else if (what == WEB_FORBIDDEN)
        web_refuse(r, what, "Open the whole address that 'ddctl web' has printed.");
    else if (what == WEB_NOT_FOUND)
        web_refuse(r, what, "There is no such page.");
    else
        web_answer(w, r, what, rank);
}

/* ---- start and end ---- */

static void web_on_idle(evutil_socket_t fd, short what, void *arg)
{
    struct web *w = arg;
    (void)fd;
    (void)what;
    dd_log(&w->log, DD_LOG_NOTICE, "no request for %.10g s; exiting", (double)w->o.idle_ns / 1e9);
    (void)event_base_loopbreak(w->base);
}

static void web_on_signal(evutil_socket_t number, short what, void *arg)
{
    struct web *w = arg;
    (void)number;
    (void)what;
    (void)event_base_loopbreak(w->base);
}

static void web_on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)evconnlistener_enable(arg);
}

/* Out of file descriptors: pause, or the level-triggered event would spin. arg is evhttp's:
 * libevent passes the argument of the listener, not one of this callback. */
static void web_on_accept_error(struct evconnlistener *l, void *arg)
{
    const struct timeval pause = dd_timeval(PAUSE_MS * DD_NS_PER_MS);
    (void)arg;
    if (event_base_once(evconnlistener_get_base(l), -1, EV_TIMEOUT, web_on_resume, l, &pause) == 0)
        (void)evconnlistener_disable(l);
}

static int web_listen(struct web *w, int i, const char *addr, struct dd_err *err)
{
    uint16_t port = w->port;
    const int fd = net_listen(addr, &w->port, 1, &port, err);
    if (fd < 0)
        return fd;
    w->listeners[i] = evhttp_accept_socket_with_handle(w->http, fd);
    if (w->listeners[i] == NULL) {
        close(fd);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    struct evconnlistener *l = evhttp_bound_socket_get_listener(w->listeners[i]);
    evconnlistener_set_error_cb(l, web_on_accept_error);
    w->port = port;
    return 0;
}

/* Listen on both loopback addresses: browsers resolve localhost to ::1 first, where another user
 * must not get the port. */
static int web_listen_both(struct web *w, struct dd_err *err)
{
    int rc = -EADDRINUSE;
    for (int i = 0; i < PORT_ATTEMPTS && rc == -EADDRINUSE; i++) {
        w->port = (uint16_t)w->o.port;
        rc = web_listen(w, 0, "127.0.0.1", err);
        if (rc < 0)
            return rc;
        rc = web_listen(w, 1, "::1", err);
        if (rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT)
            return 0; /* no IPv6 */
        if (rc == -EADDRINUSE && w->o.port != 0)
            return rc;
        if (rc < 0) {
            evhttp_del_accept_socket(w->http, w->listeners[0]);
            w->listeners[0] = NULL;
        }
    }
    return rc;
}

static int web_catch_signals(struct web *w)
{
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++)
        if ((w->signals[i] = evsignal_new(w->base, signals[i], web_on_signal, w)) == NULL ||
            event_add(w->signals[i], NULL) < 0)
            return -ENOMEM;
    return 0;
}

static int web_open(struct web *w, struct dd_err *err)
{
    unsigned char secret[WEB_SECRET];
    int rc = dd_err_set(err, -ENOMEM, "out of memory");
    if ((w->base = net_loop_new()) == NULL || (w->http = evhttp_new(w->base)) == NULL ||
        (w->idle = evtimer_new(w->base, web_on_idle, w)) == NULL || net_peer_new(&w->peer) < 0)
        return rc;
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    web_token(w->token, secret);
    evhttp_set_allowed_methods(w->http, EVHTTP_REQ_GET);
    evhttp_set_max_headers_size(w->http, HEADER_MAX);
    evhttp_set_max_body_size(w->http, 0);
    evhttp_set_timeout(w->http, REQUEST_S);
    evhttp_set_bevcb(w->http, web_on_connection, w);
    evhttp_set_gencb(w->http, web_on_request, w);
    rc = web_state_new(&w->state, w->base, w->o.job, err);
    if (rc == 0 &&
        (web_logs_new(&w->logs, w->base, web_state_job(w->state)) < 0 || web_catch_signals(w) < 0))
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    return rc < 0 ? rc : web_listen_both(w, err);
}

static void web_close(struct web *w)
{
    web_logs_free(w->logs);
    web_state_free(w->state);
    if (w->http != NULL)
        evhttp_free(w->http);
    net_peer_free(w->peer);
    struct event *events[] = {w->idle, w->signals[0], w->signals[1]};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (w->base != NULL)
        event_base_free(w->base);
}

static int web_serve(struct web *w)
{
    const struct timeval idle = dd_timeval(w->o.idle_ns);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1024);
    (void)dd_buf_printf(&out, "http://127.0.0.1:%u/?token=%s\n", w->port, w->token);
    const int code = cmd_write(&ddctl_web_options, &out);
    if (code != 0)
        return code;
    dd_log(&w->log, DD_LOG_NOTICE,
           "serving job %s until Ctrl-C, or until %.10g s have passed without a request",
           web_state_job(w->state), (double)w->o.idle_ns / 1e9);
    (void)evtimer_add(w->idle, &idle);
    (void)event_base_dispatch(w->base);
    return 0;
}

int ddctl_web(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct web w = {.log = {.fd = STDERR_FILENO,
                            .colours = dd_log_has_colours(STDERR_FILENO),
                            .level = DD_LOG_NOTICE,
                            .who = "ddctl web"}};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_web_options, &w.o, argc, argv, &res);
    if (code >= 0)
        return code;
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = web_open(&w, &err);
    code = rc < 0 ? job_fail(&ddctl_web_options, rc, &err) : web_serve(&w);
    web_close(&w);
    return code;
}
