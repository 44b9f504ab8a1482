#include "net/credential.h"

#include "base/auto.h"
#include "base/io.h"
#include "net/hello.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CREDENTIAL_ENDED "no MUNGE credential: the helper thread for MUNGE has ended unexpectedly"

enum { CREDENTIAL_STACK = 256 << 10 };

/* Sent by the thread as one packet. */
struct credential_reply {
    int rc; /* < 0: there is no credential, text is the reason */
    char text[sizeof(((struct hello_reply *)NULL)->cred)];
};

struct credential_read_reply {
    struct net_key key;
    struct dd_err err; /* rc < 0: there is no key */
};

/* The thread owns this and shares nothing with the event loop: the two exchange packets. */
struct credential_thread {
    int fd;
    struct net_key key; /* to put into new credentials */
    char *cred;         /* credential to decode; NULL: the thread makes credentials */
    char *job_id, *munge_socket;
};

/* The end of the socket pair that belongs to the event loop. */
struct credential_end {
    int fd;
    pthread_t thread;
    bool is_started;
    struct event *readable;
};

struct credential_maker {
    struct credential_end end;
    bool is_asked;
    struct credential_maker_cb cb;
};

struct credential_reader {
    struct credential_end end;
    struct credential_reader_cb cb;
};

/* ---- the thread ---- */

static void credential_thread_free(struct credential_thread *t)
{
    if (t == NULL)
        return;
    if (t->fd >= 0)
        (void)close(t->fd);
    explicit_bzero(&t->key, sizeof(t->key));
    free(t->cred);
    free(t->job_id);
    free(t->munge_socket);
    free(t);
}

static struct net_key_input credential_input(const struct credential_thread *t)
{
    static char *none[] = {NULL};
    return (struct net_key_input){
        .env = none, .job_id = t->job_id, .munge_socket = t->munge_socket};
}

static void credential_make(const struct credential_thread *t, struct credential_reply *r)
{
    const struct net_key_input in = credential_input(t);
    DD_AUTO(free) char *cred = NULL;
    struct dd_err err = {0};
    r->rc = net_key_credential(&cred, &t->key, &in, &err);
    if (r->rc == 0 && strlen(cred) >= sizeof(r->text))
        r->rc = dd_err_set(&err, -EMSGSIZE,
                           "this node's credential (%zu bytes) exceeds the limit of %zu bytes",
                           strlen(cred), sizeof(r->text) - 1);
    (void)snprintf(r->text, sizeof(r->text), "%s", r->rc == 0 ? cred : err.text);
}

static void *credential_thread_make(void *arg)
{
    struct credential_thread *t = arg;
    char request;
    while (recv(t->fd, &request, sizeof(request), 0) == sizeof(request)) {
        struct credential_reply r = {0};
        credential_make(t, &r);
        if (send(t->fd, &r, sizeof(r), MSG_NOSIGNAL) != sizeof(r))
            break;
    }
    credential_thread_free(t);
    return NULL;
}

static void *credential_thread_read(void *arg)
{
    struct credential_thread *t = arg;
    const struct net_key_input in = credential_input(t);
    struct credential_read_reply r = {0};
    (void)net_key_accept(&r.key, &in, NET_KEY_MUNGE, t->cred, &r.err);
    (void)send(t->fd, &r, sizeof(r), MSG_NOSIGNAL);
    explicit_bzero(&r, sizeof(r));
    credential_thread_free(t);
    return NULL;
}

/* Start the thread with all signals blocked: the event loop's thread handles them. */
static int credential_thread_start(pthread_t *ret, struct credential_thread *t,
                                   void *(*run)(void *))
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return -rc;
    (void)pthread_attr_setstacksize(&attr, CREDENTIAL_STACK); /* independent of ulimit -s */
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret, &attr, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -rc;
}

/* One of key and cred is NULL: the thread decodes cred, or makes credentials that contain key. */
static struct credential_thread *credential_thread_new(const struct net_key *key, const char *cred,
                                                       const struct net_key_input *in)
{
    struct credential_thread *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    *t = (struct credential_thread){.fd = -1, .job_id = strdup(in->job_id)};
    if (key != NULL)
        t->key = *key;
    if (cred != NULL)
        t->cred = strdup(cred);
    if (in->munge_socket != NULL)
        t->munge_socket = strdup(in->munge_socket);
    if (t->job_id == NULL || (cred != NULL && t->cred == NULL) ||
        (in->munge_socket != NULL && t->munge_socket == NULL)) {
        credential_thread_free(t);
        return NULL;
    }
    return t;
}

/* ---- the event loop's end ---- */

/* is_idle: the thread does not wait for munged, so it ends at once. */
static void credential_end_close(struct credential_end *e, bool is_idle)
{
    if (e->readable != NULL)
        event_free(e->readable);
    if (e->fd >= 0)
        (void)close(e->fd);
    if (e->is_started && is_idle)
        (void)pthread_join(e->thread, NULL);
    else if (e->is_started)
        (void)pthread_detach(e->thread);
    *e = (struct credential_end){.fd = -1};
}

/* Start the thread with t, which is freed on failure. -ENOMEM if t is NULL. */
static int credential_end_open(struct credential_end *e, struct event_base *base,
                               event_callback_fn on_readable, void *arg,
                               struct credential_thread *t, void *(*run)(void *))
{
    int pair[2];
    *e = (struct credential_end){.fd = -1};
    if (t == NULL)
        return -ENOMEM;
    int rc = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
    if (rc == 0) {
        e->fd = pair[0];
        t->fd = pair[1];
        e->readable = event_new(base, e->fd, EV_READ | EV_PERSIST, on_readable, arg);
        rc = e->readable == NULL || event_add(e->readable, NULL) < 0 ? -ENOMEM : 0;
    }
    if (rc == 0)
        rc = credential_thread_start(&e->thread, t, run);
    e->is_started = rc == 0;
    if (rc < 0) {
        credential_end_close(e, false);
        credential_thread_free(t);
    }
    return rc;
}

/* ---- making ---- */

static void credential_on_reply(evutil_socket_t fd, short what, void *arg)
{
    struct credential_maker *m = arg;
    struct credential_reply r;
    struct dd_err err = {0};
    (void)what;
    const ssize_t n = recv((int)fd, &r, sizeof(r), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof(r)) {
        (void)event_del(m->end.readable);
        r = (struct credential_reply){.rc = -EPIPE, .text = CREDENTIAL_ENDED};
    }
    if (r.rc < 0)
        (void)dd_err_set(&err, r.rc, "%s", r.text);
    m->is_asked = false;
    m->cb.done(m->cb.arg, r.rc < 0 ? NULL : r.text, &err);
}

static int credential_cannot_start(int rc, struct dd_err *err)
{
    return dd_err_set(err, rc, "cannot start the thread for MUNGE credentials: %s", strerror(-rc));
}

int credential_maker_new(struct credential_maker **ret, struct event_base *base,
                         const struct net_key *key, const struct net_key_input *in,
                         const struct credential_maker_cb *cb, struct dd_err *err)
{
    struct credential_maker *m = calloc(1, sizeof(*m));
    int rc = m == NULL ? -ENOMEM
                       : credential_end_open(&m->end, base, credential_on_reply, m,
                                             credential_thread_new(key, NULL, in),
                                             credential_thread_make);
    if (rc < 0) {
        free(m);
        return credential_cannot_start(rc, err);
    }
    m->cb = *cb;
    *ret = m;
    return 0;
}

int credential_maker_ask(struct credential_maker *m)
{
    static const char request = 1;
    if (m->is_asked)
        return 0;
    if (send(m->end.fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(request))
        return -errno;
    m->is_asked = true;
    return 0;
}

void credential_maker_free(struct credential_maker *m)
{
    if (m == NULL)
        return;
    credential_end_close(&m->end, !m->is_asked);
    free(m);
}

/* ---- reading ---- */

static void credential_on_read(evutil_socket_t fd, short what, void *arg)
{
    struct credential_reader *r = arg;
    struct credential_read_reply reply;
    (void)what;
    const ssize_t n = recv((int)fd, &reply, sizeof(reply), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof(reply)) {
        reply = (struct credential_read_reply){0};
        (void)dd_err_set(&reply.err, -EPIPE, CREDENTIAL_ENDED);
    }
    /* End the thread before the callback, which may lead to a fork. */
    credential_end_close(&r->end, true);
    r->cb.done(r->cb.arg, reply.err.rc < 0 ? NULL : &reply.key, &reply.err); /* may free r */
    explicit_bzero(&reply, sizeof(reply));
}

int credential_reader_new(struct credential_reader **ret, struct event_base *base,
                          const struct net_key_input *in, const char *cred,
                          const struct credential_reader_cb *cb, struct dd_err *err)
{
    struct credential_reader *r;
    /* Load the library here: a fork while the thread is in dlopen() would copy its lock. */
    int rc = net_key_prepare(NET_KEY_MUNGE, err);
    if (rc < 0)
        return rc;
    r = calloc(1, sizeof(*r));
    rc = r == NULL
             ? -ENOMEM
             : credential_end_open(&r->end, base, credential_on_read, r,
                                   credential_thread_new(NULL, cred, in), credential_thread_read);
    if (rc < 0) {
        free(r);
        return credential_cannot_start(rc, err);
    }
    r->cb = *cb;
    *ret = r;
    return 0;
}

void credential_reader_free(struct credential_reader *r)
{
    if (r == NULL)
        return;
    credential_end_close(&r->end, false);
    free(r);
}
