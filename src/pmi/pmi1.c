#include "pmi/pmi1.h"

#include "base/auto.h"
#include "base/num.h"
#include "pmi/kvs.h"
#include "pmi/pmi1_wire.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

struct client {
    struct pmi1 *server;
    int rank;
    int fd;       /* -1: closed */
    int their_fd; /* the worker's end, until the worker has started */
    struct event *ev;
    size_t len;    /* bytes in `in` */
    bool spawning; /* between mcmd=spawn and endcmd */
    bool in_barrier;
    struct pmi1_end end;
    char in[PMI_READ_MAX + 1];
};

struct pmi1 {
    struct pmi1_cfg cfg;
    char kvsname[PMI_NAME_MAX];
    struct kvs *kvs;
    unsigned barrier; /* number of barriers that all workers of this node have entered */
    int waiting;      /* number of workers in the current barrier */
    struct client *c; /* [local_size] */
};

static void client_close(struct client *c)
{
    if (c->ev != NULL)
        event_free(DD_TAKE(c->ev));
    if (c->fd >= 0)
        close(c->fd);
    if (c->their_fd >= 0)
        close(c->their_fd);
    c->fd = c->their_fd = -1;
}

/* Close the connection of a client, and log the reason; the worker's next PMI call fails. */
static void client_refuse(struct client *c, const char *why)
{
    dd_log(c->server->cfg.log, DD_LOG_WARN, "PMI: closing the connection of rank %d: %s", c->rank,
           why);
    client_close(c);
}

/* Send a reply. A worker waits for each reply before its next request, so the socket always has
 * room. */
__attribute__((format(printf, 2, 3))) static void pmi1_answer(struct client *c, const char *fmt,
                                                              ...)
{
    char line[PMI_READ_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= PMI_LINE_MAX) {
        client_refuse(c, "the reply is longer than a PMI-1 line");
        return;
    }
    line[n++] = '\n';
    if (c->fd >= 0 && send(c->fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
        client_close(c); /* the worker has exited, or does not read replies */
}

static void on_init(struct client *c, const struct pmi_request *r)
{
    bool ok = strcmp(r->pmi_version, "1") == 0;
    c->end.open = c->end.open || ok;
    pmi1_answer(c, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d", ok ? 0 : -1);
}

static void on_maxes(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d", PMI_NAME_MAX,
                PMI_NAME_MAX, PMI_VALUE_MAX);
}

static void on_appnum(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=appnum rc=0 appnum=0");
}

static void on_kvsname(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=my_kvsname rc=0 kvsname=%s", c->server->kvsname);
}

static void on_universe_size(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=universe_size rc=0 size=%d", c->server->cfg.world_size);
}

static void on_put(struct client *c, const struct pmi_request *r)
{
    struct pmi1 *s = c->server;
    if (strcmp(r->kvsname, s->kvsname) != 0)
        pmi1_answer(c, "cmd=put_result rc=-1 msg=no_such_kvsname");
    else if (!pmi_name_ok(r->key) || !pmi_name_ok(r->value))
        pmi1_answer(c, "cmd=put_result rc=-1 msg=bad_key_or_value");
    else if (kvs_put(s->kvs, r->key, r->value) < 0)
        pmi1_answer(c, "cmd=put_result rc=-1 msg=no_room");
    else
        pmi1_answer(c, "cmd=put_result rc=0 msg=success");
}

static void on_get(struct client *c, const struct pmi_request *r)
{
    struct pmi1 *s = c->server;
    const char *value = strcmp(r->kvsname, s->kvsname) == 0 ? kvs_get(s->kvs, r->key) : NULL;
    if (value == NULL)
        pmi1_answer(c, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
    else
        pmi1_answer(c, "cmd=get_result rc=0 msg=success value=%s", value);
}

static void on_barrier(struct client *c, const struct pmi_request *r)
{
    (void)r;
    struct pmi1 *s = c->server;
    if (c->in_barrier) {
        client_refuse(c, "a second 'cmd=barrier_in' before the barrier has ended");
        return;
    }
    c->in_barrier = true;
    if (++s->waiting < s->cfg.local_size)
        return;
    size_t n;
    const void *part = kvs_news(s->kvs, &n);
    s->barrier++;
    s->cfg.on_barrier(s->cfg.arg, s->barrier, part, n);
    kvs_news_told(s->kvs);
}

static void on_finalize(struct client *c, const struct pmi_request *r)
{
    (void)r;
    c->end.open = false;
    pmi1_answer(c, "cmd=finalize_ack rc=0");
}

static void pmi1_on_abort(struct client *c, const struct pmi_request *r)
{
    struct pmi1 *s = c->server;
    c->end.aborted = true;
    if (r->exitcode == NULL || dd_num_int(r->exitcode, INT32_MIN, INT32_MAX, &c->end.code) < 0)
        c->end.code = 1;
    s->cfg.on_abort(s->cfg.arg, c->rank - s->cfg.first_rank);
}

static void on_publish(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=publish_result rc=-1 msg=not_supported");
}

static void on_unpublish(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=unpublish_result rc=-1 msg=not_supported");
}

static void pmi1_on_lookup(struct client *c, const struct pmi_request *r)
{
    (void)r;
    pmi1_answer(c, "cmd=lookup_result rc=-1 msg=not_supported");
}

static void on_spawn(struct client *c, const struct pmi_request *r)
{
    (void)r;
    c->spawning = true;
}

static void on_endcmd(struct client *c, const struct pmi_request *r)
{
    (void)r;
    if (c->spawning)
        pmi1_answer(c, "cmd=spawn_result rc=-1 msg=not_supported");
    c->spawning = false;
}

static void (*const handlers[PMI_CMD_MAX])(struct client *, const struct pmi_request *) = {
    [PMI_INIT] = on_init,
    [PMI_GET_MAXES] = on_maxes,
    [PMI_GET_APPNUM] = on_appnum,
    [PMI_GET_MY_KVSNAME] = on_kvsname,
    [PMI_GET_UNIVERSE_SIZE] = on_universe_size,
    [PMI_PUT] = on_put,
    [PMI_GET] = on_get,
    [PMI_BARRIER_IN] = on_barrier,
    [PMI_FINALIZE] = on_finalize,
    [PMI_ABORT] = pmi1_on_abort,
    [PMI_PUBLISH_NAME] = on_publish,
    [PMI_UNPUBLISH_NAME] = on_unpublish,
    [PMI_LOOKUP_NAME] = pmi1_on_lookup,
    [PMI_SPAWN] = on_spawn,
    [PMI_ENDCMD] = on_endcmd,
};

static void client_line(struct client *c, char *line, size_t n)
{
    struct pmi_request r;
    struct dd_err err = {0};
    char shown[64];
    if (c->server->cfg.refusal != NULL)
        client_refuse(c, c->server->cfg.refusal);
    else if (pmi_request_parse(&r, line, n, &err) < 0)
        client_refuse(c, err.text);
    else if (r.cmd < PMI_OTHER && (!c->spawning || r.cmd == PMI_ENDCMD))
        handlers[r.cmd](c, &r);
    else if (!c->spawning) {
        (void)snprintf(err.text, sizeof(err.text), "unknown PMI-1 request '%s'",
                       dd_log_escape(shown, sizeof(shown), line, strlen(line)));
        client_refuse(c, err.text);
    }
}

/* Read and handle available lines; false: nothing more to read now. */
static bool client_read(struct client *c)
{
    ssize_t got = recv(c->fd, c->in + c->len, PMI_READ_MAX - c->len, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        client_close(c);
        return false;
    }
    c->len += (size_t)got;
    char *from = c->in;
    char *end;
    while (c->fd >= 0 && (end = memchr(from, '\n', (size_t)(c->in + c->len - from))) != NULL) {
        client_line(c, from, (size_t)(end - from));
        from = end + 1;
    }
    c->len -= (size_t)(from - c->in);
    memmove(c->in, from, c->len);
    if (c->fd >= 0 && c->len == PMI_READ_MAX)
        client_refuse(c, "the request is longer than a PMI-1 line");
    return c->fd >= 0;
}

static void pmi1_on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)client_read(arg);
}

static int client_begin(struct client *c, struct pmi1 *s, int local_rank)
{
    int pair[2];
    *c = (struct client){
        .server = s, .rank = s->cfg.first_rank + local_rank, .fd = -1, .their_fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    c->fd = pair[0];
    c->their_fd = pair[1];
    c->ev = event_new(s->cfg.base, c->fd, EV_READ | EV_PERSIST, pmi1_on_readable, c);
    return c->ev == NULL || event_add(c->ev, NULL) < 0 ? -ENOMEM : 0;
}

static int fill_kvs(struct pmi1 *s)
{
    unsigned char seed[16];
    DD_AUTO(buf) struct dd_buf mapping = DD_BUF_INIT(1 << 20);
    if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
        return -EIO;
    int rc = kvs_new(&s->kvs, seed);
    if (rc < 0)
        return rc;
    rc = pmi_mapping(&mapping, s->cfg.sizes, s->cfg.nnodes);
    const char *text = rc == 0 ? dd_buf_str(&mapping) : NULL;
    if (rc == -EMSGSIZE)
        return 0;
    return text == NULL ? -ENOMEM : kvs_set(s->kvs, "PMI_process_mapping", text);
}

int pmi1_new(struct pmi1 **ret, const struct pmi1_cfg *cfg, struct dd_err *err)
{
    struct pmi1 *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->cfg = *cfg;
    (void)snprintf(s->kvsname, sizeof(s->kvsname), "%s", cfg->kvsname);
    s->c = calloc((size_t)cfg->local_size, sizeof(*s->c));
    for (int i = 0; s->c != NULL && i < cfg->local_size; i++)
        s->c[i].fd = s->c[i].their_fd = -1;
    int rc = s->c == NULL ? -ENOMEM : fill_kvs(s);
    for (int i = 0; i < cfg->local_size && rc == 0; i++)
        rc = client_begin(&s->c[i], s, i);
    if (rc < 0) {
        pmi1_free(s);
        return dd_err_set(err, rc, "cannot serve PMI to %d worker%s: %s", cfg->local_size,
                          cfg->local_size == 1 ? "" : "s", strerror(-rc));
    }
    *ret = s;
    return 0;
}

int pmi1_fd(const struct pmi1 *s, int local_rank)
{
    return s->c[local_rank].their_fd;
}

void pmi1_started(struct pmi1 *s)
{
    for (int i = 0; i < s->cfg.local_size; i++) {
        if (s->c[i].their_fd >= 0)
            close(s->c[i].their_fd);
        s->c[i].their_fd = -1;
    }
}

int pmi1_take(struct pmi1 *s, const void *part, size_t len, struct dd_err *err)
{
    return kvs_take(s->kvs, part, len, err);
}

void pmi1_release(struct pmi1 *s)
{
    s->waiting = 0;
    for (int i = 0; i < s->cfg.local_size; i++) {
        struct client *c = &s->c[i];
        if (c->in_barrier)
            pmi1_answer(c, "cmd=barrier_out rc=0");
        c->in_barrier = false;
    }
}

struct pmi1_end pmi1_ended(struct pmi1 *s, int local_rank)
{
    struct client *c = &s->c[local_rank];
    while (c->fd >= 0 && client_read(c))
        ;
    return c->end;
}

bool pmi1_has_ranks(const struct pmi1 *s)
{
    bool has = false;
    for (int i = 0; i < s->cfg.local_size && !has; i++)
        has = s->c[i].end.open;
    return has;
}

void pmi1_free(struct pmi1 *s)
{
    if (s == NULL)
        return;
    for (int i = 0; s->c != NULL && i < s->cfg.local_size; i++)
        client_close(&s->c[i]);
    kvs_free(s->kvs);
    free(s->c);
    free(s);
}
