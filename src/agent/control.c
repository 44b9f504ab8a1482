/* Requests of ddctl on this node, forwarded to the daemon, and its replies. The kernel names the
 * user of each caller (net/local_socket.h). A caller that does not read its replies is dropped. */
#include "agent/inner.h"

#include "base/io.h"
#include "net/local_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum { CALLERS = 32, PAUSE_MS = 100, AT_ONCE = 64 };

struct caller {
    LIST_ENTRY(caller) entry;
    struct control *control;
    struct link *link;
    int64_t asked; /* id of the caller's request */
    int64_t id;    /* id of the same request at the daemon; 0: no request pending */
};

struct control {
    struct agent *agent;
    int fd;
    struct event *ev, *pause;
    LIST_HEAD(, caller) callers;
    int n;
    int64_t last_id;
};

/* Send m to the caller; < 0: the connection has failed. */
static int control_tell(const struct caller *c, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    return rc < 0 ? rc : link_send(c->link, FRAME_CONTROL, text, strlen(text));
}

static void control_drop(struct caller *c)
{
    struct agent *a = c->control->agent;
    if (c->id != 0 && uplink_is_up(a->uplink))
        uplink_send(a->uplink, MSG(CTL_REQUEST, .id = c->id, .what = "forget", .text = ""));
    LIST_REMOVE(c, entry);
    c->control->n--;
    link_free(c->link);
    free(c);
}

static int control_refuse(struct caller *c, const char *why)
{
    c->id = 0;
    return control_tell(c,
                        MSG(CTL_REPLY, .id = c->asked, .ok = false, .ends = true, .detail = why));
}

static void on_ask(struct caller *c, const struct msg_ctl_request *m)
{
    struct agent *a = c->control->agent;
    const bool busy = c->id != 0;
    c->asked = m->id;
    if (busy || !uplink_is_up(a->uplink)) {
        if (busy ||
            control_refuse(
                c,
                "this node is not connected to the job's daemon (the job is starting or ending)") <
                0)
            control_drop(c);
        return;
    }
    c->id = ++c->control->last_id;
    uplink_send(a->uplink, MSG(CTL_REQUEST, .id = c->id, .what = m->what, .text = m->text));
}

static void control_on_frame(void *arg, struct link *l, const struct frame *f)
{
    DD_AUTO(msg) struct msg m = {0};
    (void)l;
    if (f->type != FRAME_CONTROL)
        return;
    if (msg_decode(&m, f->data, f->len, NULL) < 0 || m.type != MSG_CTL_REQUEST)
        control_drop(arg);
    else
        on_ask(arg, &m.ctl_request);
}

static void control_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    (void)clean;
    (void)why;
    control_drop(arg);
}

static void control_accept(struct control *k, int fd)
{
    struct agent *a = k->agent;
    struct caller *c = calloc(1, sizeof(*c));
    const struct link_cb cb = {
        .on_frame = control_on_frame, .on_close = control_on_close, .arg = c};
    if (c == NULL || k->n >= CALLERS ||
        link_new_trusted(&c->link, a->loop.base, fd, &cb, NULL) < 0) {
        free(c);
        close(fd);
        return;
    }
    c->control = k;
    LIST_INSERT_HEAD(&k->callers, c, entry);
    k->n++;
    if (control_tell(c, MSG(IDENTITY, .name = a->loop.cfg->node_name,
                            .text = a->loop.cfg->alloc->job_id)) < 0)
        control_drop(c);
}

/* Out of file descriptors: pause accepting, or the level-triggered event would spin. */
static void wait_for_files(struct control *k)
{
    const struct timeval pause = dd_timeval(PAUSE_MS * DD_NS_PER_MS);
    if (event_add(k->pause, &pause) == 0)
        (void)event_del(k->ev);
}

static void on_pause(evutil_socket_t fd, short what, void *arg)
{
    struct control *k = arg;
    (void)fd;
    (void)what;
    (void)event_add(k->ev, NULL);
}

static void on_call(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    int caller = 0;
    for (int i = 0; i < AT_ONCE && (caller >= 0 || caller == -EACCES);
         i++) /* -EACCES: a caller of another user */
        if ((caller = local_socket_accept(fd)) >= 0)
            control_accept(arg, caller);
    if (caller == -EMFILE || caller == -ENFILE || caller == -ENOBUFS || caller == -ENOMEM)
        wait_for_files(arg);
}

/* A failure is only logged: the job runs without ddctl. */
void control_start(struct agent *a)
{
    struct control *k = calloc(1, sizeof(*k));
    struct dd_err err = {0};
    if (k == NULL)
        return;
    *k = (struct control){.agent = a, .fd = -1};
    int rc = local_socket_listen(&k->fd, &err);
    if (rc == 0)
        k->ev = event_new(a->loop.base, k->fd, EV_READ | EV_PERSIST, on_call, k);
    k->pause = evtimer_new(a->loop.base, on_pause, k);
    a->control = k;
    if (rc < 0 || k->ev == NULL || k->pause == NULL || event_add(k->ev, NULL) < 0) {
        dd_log(a->loop.cfg->log, DD_LOG_DEBUG, "event=no-control why=%s", err.text);
        control_free(a);
    }
}

void control_take(struct agent *a, const struct msg_ctl_reply *m)
{
    struct caller *c;
    if (a->control == NULL || m->id <= 0)
        return;
    LIST_FOREACH (c, &a->control->callers, entry)
        if (c->id == m->id)
            break;
    if (c == NULL)
        return;
    if (m->ends)
        c->id = 0;
    if (control_tell(c, MSG(CTL_REPLY, .id = c->asked, .ok = m->ok, .ends = m->ends,
                            .detail = m->detail)) < 0)
        control_drop(c);
}

void control_lost(struct agent *a)
{
    struct caller *next;
    for (struct caller *c = a->control != NULL ? LIST_FIRST(&a->control->callers) : NULL; c != NULL;
         c = next) {
        next = LIST_NEXT(c, entry);
        if (c->id != 0 &&
            control_refuse(c, "lost the daemon, or the job ended, before the daemon answered") < 0)
            control_drop(c);
    }
}

void control_free(struct agent *a)
{
    struct control *k = a->control;
    if (k == NULL)
        return;
    if (k->ev != NULL)
        event_free(k->ev);
    if (k->pause != NULL)
        event_free(k->pause);
    if (k->fd >= 0)
        close(k->fd);
    if (!LIST_EMPTY(&k->callers))
        (void)event_base_loop(a->loop.base, EVLOOP_NONBLOCK); /* send the last replies */
    while (!LIST_EMPTY(&k->callers))
        control_drop(LIST_FIRST(&k->callers));
    free(k);
    a->control = NULL;
}
