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

enum { CREDENTIAL_STACK = 256 << 10 };

/* From the thread, as one packet. */
struct credential_reply {
    int rc; /* < 0: text says why there is no credential */
    char text[sizeof(((struct hello_reply *)NULL)->cred)];
};

/* The thread owns this and shares nothing with the event loop: the two exchange packets. */
struct credential_thread {
    int fd;
    struct net_key key;
    char *job_id, *munge_socket;
};

struct credential_maker {
    int fd;
    pthread_t thread;
    bool is_started;
    struct event *readable;
    bool is_asked;
    struct credential_maker_cb cb;
};

/* ---- the thread ---- */

static void credential_thread_free(struct credential_thread *t)
{
    if (t->fd >= 0)
        (void)close(t->fd);
    explicit_bzero(&t->key, sizeof(t->key));
    free(t->job_id);
    free(t->munge_socket);
    free(t);
}

static void credential_make(const struct credential_thread *t, struct credential_reply *r)
{
    const struct net_key_input in = {.job_id = t->job_id, .munge_socket = t->munge_socket};
    DD_AUTO(free) char *cred = NULL;
    struct dd_err err = {0};
    r->rc = net_key_credential(&cred, &t->key, &in, &err);
    if (r->rc == 0 && strlen(cred) >= sizeof(r->text))
        r->rc = dd_err_set(&err, -EMSGSIZE, "the credential is too long");
    (void)snprintf(r->text, sizeof(r->text), "%s", r->rc == 0 ? cred : err.text);
}

static void *credential_thread_run(void *arg)
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

/* Signals are for the event loop's thread. */
static int credential_thread_start(pthread_t *ret, struct credential_thread *t)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return -rc;
    (void)pthread_attr_setstacksize(&attr, CREDENTIAL_STACK); /* whatever ulimit -s says */
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret, &attr, credential_thread_run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -rc;
}

static struct credential_thread *credential_thread_new(int fd, const struct net_key *key,
                                                       const struct net_key_input *in)
{
    struct credential_thread *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    *t = (struct credential_thread){.fd = -1, .key = *key, .job_id = strdup(in->job_id)};
    if (in->munge_socket != NULL)
        t->munge_socket = strdup(in->munge_socket);
    if (t->job_id == NULL || (in->munge_socket != NULL && t->munge_socket == NULL)) {
        credential_thread_free(t);
        return NULL;
    }
    t->fd = fd;
    return t;
}

/* ---- the event loop's side ---- */

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
        (void)event_del(m->readable);
        r = (struct credential_reply){.rc = -EPIPE, .text = "the thread for MUNGE has ended"};
    }
    if (r.rc < 0)
        (void)dd_err_set(&err, r.rc, "%s", r.text);
    m->is_asked = false;
    m->cb.done(m->cb.arg, r.rc < 0 ? NULL : r.text, &err);
}

int credential_maker_new(struct credential_maker **ret, struct event_base *base,
                         const struct net_key *key, const struct net_key_input *in,
                         const struct credential_maker_cb *cb, struct dd_err *err)
{
    int pair[2];
    struct credential_maker *m = calloc(1, sizeof(*m));
    if (m == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(m);
        return dd_err_set(err, -ENOMEM, "cannot start the thread for MUNGE credentials: %m");
    }
    *m = (struct credential_maker){.fd = pair[0], .cb = *cb};
    m->readable = event_new(base, m->fd, EV_READ | EV_PERSIST, credential_on_reply, m);
    struct credential_thread *t = credential_thread_new(pair[1], key, in);
    int rc = m->readable != NULL && t != NULL && event_add(m->readable, NULL) == 0 ? 0 : -ENOMEM;
    if (rc == 0)
        rc = credential_thread_start(&m->thread, t);
    if (rc < 0) {
        if (t != NULL)
            credential_thread_free(t);
        else
            (void)close(pair[1]);
        credential_maker_free(m);
        return dd_err_set(err, rc, "cannot start the thread for MUNGE credentials: %s",
                          strerror(-rc));
    }
    m->is_started = true;
    *ret = m;
    return 0;
}

int credential_maker_ask(struct credential_maker *m)
{
    static const char request = 1;
    if (m->is_asked)
        return 0;
    if (send(m->fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(request))
        return -errno;
    m->is_asked = true;
    return 0;
}

void credential_maker_free(struct credential_maker *m)
{
    if (m == NULL)
        return;
    if (m->readable != NULL)
        event_free(m->readable);
    (void)close(m->fd);
    if (m->is_started && m->is_asked)
        (void)pthread_detach(m->thread);
    else if (m->is_started)
        (void)pthread_join(m->thread, NULL);
    free(m);
}
