#include "net_world.h"

#include "net/listen.h"

#include <dirent.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

char key_a[] = "DDRUN_KEY=5d3f0a6c81e2497bb0c4fd95167a28e3d94e7b1f2c6085a3ee39710d5fa2c846";
char key_b[] = "DDRUN_KEY=c3a90e5b7714fd286b1f08e4952dca732f7c1d9e04b8a35f6611e0c97d4ab852";

size_t open_fds(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;
    (void)fd;
    (void)what;
    w->timed_out = true;
    (void)event_base_loopbreak(w->base);
}

int world_set_up(void **state)
{
    const struct timeval tv = {WORLD_LIMIT_MS / 1000, 0};
    struct world *w = calloc(1, sizeof(*w));
    (void)signal(SIGPIPE, SIG_IGN);
    w->fds = open_fds();
    w->base = event_base_new();
    assert_int_equal(pipe2(w->log_pipe, O_CLOEXEC | O_NONBLOCK), 0);
    w->log = (struct dd_log){.level = DD_LOG_INFO, .fd = w->log_pipe[1], .who = "test"};
    w->limit = evtimer_new(w->base, on_limit, w);
    w->guest = (struct net_key_input){
        .env = w->env, .job_id = "slurm-1.0", .munge_socket = "/nonexistent/munge"};
    w->cfg = (struct link_find_cfg){.job_id = "slurm-1.0",
                                    .node = "node3",
                                    .host_is_me = true,
                                    .key_in = &w->guest,
                                    .log = &w->log,
                                    .attempt_ms = WORLD_LIMIT_MS};
    assert_int_equal(evtimer_add(w->limit, &tv), 0);
    *state = w;
    return 0;
}

int world_tear_down(void **state)
{
    struct world *w = *state;
    link_find_free(w->find);
    link_free(w->found);
    for (size_t i = 0; i < w->nhosts; i++)
        world_close_host(&w->hosts[i]);
    event_free(w->limit);
    event_base_free(w->base);
    (void)close(w->log_pipe[0]);
    (void)close(w->log_pipe[1]);
    SSL_CTX_free(w->ssl_ctx);
    assert_int_equal(open_fds(), w->fds);
    free(w);
    return 0;
}

/* ---- listeners ---- */

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct host *h = arg;
    for (size_t i = 0; i < h->naccepts; i++)
        if (h->accepts[i] == a)
            h->accepts[i] = NULL;
    link_accept_free(a);
    if (l != NULL) {
        h->links[h->nlinks++] = l;
        return;
    }
    h->nrefused++;
    (void)snprintf(h->why, sizeof(h->why), "%s", why);
}

static void accept_link(struct host *h, int fd)
{
    const struct link_accept_cfg cfg = {.job_id = h->job,
                                        .key = &h->key,
                                        .key_in = &h->in,
                                        .log = &h->w->log,
                                        .timeout_ms = h->timeout_ms,
                                        .shared = &h->shared};
    assert_int_equal(link_accept_start(&h->accepts[h->naccepts++], h->w->base, fd, &cfg,
                                       &(struct link_accept_cb){.done = on_accepted, .arg = h},
                                       NULL),
                     0);
}

struct late {
    struct host *h;
    int fd;
};

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    struct late *late = arg;
    (void)fd;
    (void)what;
    late->h->nlate--;
    accept_link(late->h, late->fd);
    free(late);
}

static void accept_late(struct host *h, int fd)
{
    const struct timeval tv = {h->delay_ms / 1000, (long)(h->delay_ms % 1000) * 1000};
    struct late *late = calloc(1, sizeof(*late));
    *late = (struct late){.h = h, .fd = fd};
    assert_int_equal(event_base_once(h->w->base, -1, EV_TIMEOUT, on_late, late, &tv), 0);
    h->nlate++;
}

/* Return a context with a self-signed certificate. */
static SSL_CTX *certified(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY_CTX *gen = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    EVP_PKEY *key = NULL;
    assert_int_equal(EVP_PKEY_keygen_init(gen), 1);
    assert_int_equal(EVP_PKEY_keygen(gen, &key), 1);
    EVP_PKEY_CTX_free(gen);
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    (void)X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"host", -1,
                                     -1, 0);
    (void)X509_set_issuer_name(x, name);
    (void)X509_gmtime_adj(X509_getm_notBefore(x), 0);
    (void)X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    assert_int_equal(X509_set_pubkey(x, key), 1);
    assert_true(X509_sign(x, key, NULL) > 0);
    assert_int_equal(SSL_CTX_use_certificate(ctx, x), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(x);
    EVP_PKEY_free(key);
    return ctx;
}

static void on_other_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    (void)what;
    (void)arg;
}

/* The caller's hello has arrived at a listener that only claims to be a daemon. */
static void on_other_hello(struct bufferevent *bev, void *arg)
{
    struct host *h = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t n = evbuffer_get_length(in);
    if (hello_need(evbuffer_pullup(in, -1), n) > n)
        return;
    (void)evbuffer_drain(in, n);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    struct hello_reply r = {.status = HELLO_OK, .method = NET_KEY_SHARED};
    if (h->manner == OFFERS)
        r = (struct hello_reply){
            .status = HELLO_OK, .method = NET_KEY_MUNGE, .cred = "MUNGE:AwQFAAC8:"};
    assert_int_equal(hello_reply_encode(&out, &r), 0);
    if (h->manner == NEWER)
        out.data[3]++;
    if (h->manner == BABBLES)
        (void)dd_buf_puts(&out, "this is no TLS, whatever it may be");
    if (h->manner != CERTIFICATE) {
        (void)bufferevent_write(bev, out.data, out.len);
        bufferevent_setcb(bev, NULL, NULL, on_other_event, NULL);
        return;
    }
    int fd = bufferevent_getfd(bev);
    assert_int_equal(write(fd, out.data, out.len), out.len);
    if (h->w->ssl_ctx == NULL)
        h->w->ssl_ctx = certified();
    (void)bufferevent_setfd(bev, -1);
    for (size_t i = 0; i < h->nothers; i++)
        if (h->others[i] == bev)
            h->others[i] = bufferevent_openssl_socket_new(
                h->w->base, fd, SSL_new(h->w->ssl_ctx), BUFFEREVENT_SSL_ACCEPTING,
                BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    bufferevent_free(bev);
}

static void on_connection(evutil_socket_t fd, short what, void *arg)
{
    struct host *h = arg;
    (void)what;
    int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (c < 0)
        return;
    if (h->manner == HANGS_UP || h->naccepts == CONNECTIONS_MAX || h->nothers == CONNECTIONS_MAX) {
        (void)close(c);
        return;
    }
    if (h->manner == DAEMON) {
        if (h->delay_ms > 0)
            accept_late(h, c);
        else
            accept_link(h, c);
        return;
    }
    struct bufferevent *bev = bufferevent_socket_new(h->w->base, c, BEV_OPT_CLOSE_ON_FREE);
    h->others[h->nothers++] = bev;
    if (h->manner == GARBAGE)
        (void)bufferevent_write(bev, "SSH-2.0-OpenSSH_9.2\r\n", 21);
    if (h->manner == GARBAGE || h->manner == SILENT)
        return;
    bufferevent_setcb(bev, on_other_hello, NULL, on_other_event, h);
    (void)bufferevent_enable(bev, EV_READ);
}

static struct host *start_host(struct world *w, const char *addr, uint16_t port)
{
    struct host *h = &w->hosts[w->nhosts++];
    struct dd_err err = {.text = ""};
    h->fd = net_listen(addr, &port, 1, &h->port, &err);
    if (h->fd < 0)
        fail_msg("%s", err.text);
    h->ev = event_new(w->base, h->fd, EV_READ | EV_PERSIST, on_connection, h);
    assert_int_equal(event_add(h->ev, NULL), 0);
    return h;
}

struct host *world_host_with(struct world *w, const struct net_key_input *in)
{
    struct host *h = &w->hosts[w->nhosts];
    *h = (struct host){.w = w, .manner = DAEMON, .job = in->job_id, .in = *in};
    h->timeout_ms = WORLD_LIMIT_MS;
    assert_int_equal(net_key_for_leader(&h->key, in, NULL), 0);
    return start_host(w, "127.0.0.1", 0);
}

struct host *world_host(struct world *w, const char *addr, uint16_t port, enum manner manner,
                        const char *job, char *env)
{
    struct host *h = &w->hosts[w->nhosts];
    char *envs[] = {env, NULL};
    *h = (struct host){.w = w, .manner = manner, .job = job, .timeout_ms = WORLD_LIMIT_MS};
    h->in = (struct net_key_input){.env = envs, .job_id = job, .insecure = env == NULL};
    if (manner == DAEMON)
        assert_int_equal(net_key_for_leader(&h->key, &h->in, NULL), 0);
    h->in.env = NULL;
    return start_host(w, addr, port);
}

void world_close_host(struct host *h)
{
    if (h->ev == NULL)
        return;
    event_free(h->ev);
    (void)close(h->fd);
    for (size_t i = 0; i < h->naccepts; i++)
        link_accept_free(h->accepts[i]);
    for (size_t i = 0; i < h->nlinks; i++)
        link_free(h->links[i]);
    for (size_t i = 0; i < h->nothers; i++)
        bufferevent_free(h->others[i]);
    link_shared_done(&h->shared);
    h->naccepts = h->nlinks = h->nothers = 0;
    h->ev = NULL;
}

/* ---- the caller ---- */

static void on_found(void *arg, struct link *l)
{
    struct world *w = arg;
    w->found = l;
}

void world_find(struct world *w, const char *host, const uint16_t *ports, size_t n, char *env)
{
    struct dd_err err = {.text = ""};
    w->env[0] = env;
    w->guest.insecure = env == NULL;
    w->cfg.host = host;
    w->cfg.ports = ports;
    w->cfg.nports = n;
    if (link_find_start(&w->find, w->base, &w->cfg, on_found, w, &err) < 0)
        fail_msg("%s", err.text);
}

const char *world_logged(struct world *w)
{
    size_t len = strlen(w->logged);
    ssize_t n = read(w->log_pipe[0], w->logged + len, sizeof(w->logged) - len - 1);
    w->logged[len + (n > 0 ? (size_t)n : 0)] = '\0';
    return w->logged;
}

size_t world_count_logged(struct world *w, const char *text)
{
    size_t n = 0;
    for (const char *at = world_logged(w); (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

void world_run_until(struct world *w, bool (*is_done)(struct world *))
{
    while (!w->timed_out && !is_done(w))
        (void)event_base_loop(w->base, EVLOOP_ONCE);
    if (w->timed_out && w->find != NULL)
        print_message("status: %s\nlog: %s\n", link_find_status(w->find), world_logged(w));
    assert_false(w->timed_out);
}

/* Check the frame: each byte is the number of frames received before it. */
static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct world *w = arg;
    for (size_t i = 0; i < f->len; i++)
        w->wrong_bytes += f->data[i] != (unsigned char)w->frames;
    w->frames++;
    w->bytes += f->len;
    memcpy(w->last, f->data, f->len < sizeof(w->last) ? f->len : sizeof(w->last));
    if (w->free_in_frame)
        link_free(l);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct world *w = arg;
    w->closed++;
    w->clean = clean;
    (void)snprintf(w->why, sizeof(w->why), "%s", why);
    if (w->free_in_close)
        link_free(l);
}

struct link_cb world_callbacks(struct world *w)
{
    return (struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = w};
}

struct host *world_link_up(struct world *w, char *host_env, char *guest_env)
{
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", host_env);
    world_find(w, "127.0.0.1", &h->port, 1, guest_env);
    world_run_until(w, is_linked);
    const struct link_cb cb = world_callbacks(w);
    link_set_cb(w->found, &cb);
    link_set_cb(h->links[0], &cb);
    return h;
}

int world_connect(const struct host *h)
{
    struct net_addr a;
    assert_int_equal(net_addr_parse(&a, "127.0.0.1", h->port), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &a.sa, a.len), 0);
    return fd;
}

bool is_linked(struct world *w)
{
    for (size_t i = 0; w->found != NULL && i < w->nhosts; i++)
        if (w->hosts[i].port == net_addr_port(link_peer(w->found)))
            return w->hosts[i].nlinks > 0;
    return false;
}

bool has_frame(struct world *w)
{
    return w->frames > 0;
}

bool has_closed(struct world *w)
{
    return w->closed > 0;
}

bool status_has(struct world *w, const char *text)
{
    assert_null(w->found);
    return strstr(link_find_status(w->find), text) != NULL;
}
