#include "agent/control.h"

#include "agent/agent.h"
#include "base/io.h"
#include "net/local_socket.h"

#include <errno.h>
#include <event2/event.h>
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
    int64_t id;    /* id of the request at the daemon; 0: no request is pending */
};

struct control {
    struct agent_loop *loop;
    struct uplink *uplink;
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
    struct uplink *u = c->control->uplink;
    if (c->id != 0 && uplink_is_up(u))
        uplink_send(u, MSG(CTL_REQUEST, .id = c->id, .what = "forget", .text = ""));
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
    struct uplink *u = c->control->uplink;
    const bool busy = c->id != 0;
    c->asked = m->id;
    if (busy || !uplink_is_up(u)) {
        if (busy ||
            control_refuse(
                c, "this node has no connection to the job's daemon: the job is starting or "
                   "ending, or the daemon was lost") < 0)
            control_drop(c);
        return;
    }
    c->id = ++c->control->last_id;
    uplink_send(u, MSG(CTL_REQUEST, .id = c->id, .what = m->what, .text = m->text));
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
    const struct agent_loop *l = k->loop;
    struct caller *c = calloc(1, sizeof(*c));
    const struct link_cb cb = {
        .on_frame = control_on_frame, .on_close = control_on_close, .arg = c};
    if (c == NULL || k->n >= CALLERS || link_new_trusted(&c->link, l->base, fd, &cb, NULL) < 0) {
        free(c);
        close(fd);
        return;
    }
    c->control = k;
    LIST_INSERT_HEAD(&k->callers, c, entry);
    k->n++;
    if (control_tell(c, MSG(IDENTITY, .name = l->cfg->node_name, .text = l->cfg->alloc->job_id)) <
        0)
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

struct control *control_new(struct agent_loop *loop, struct uplink *uplink)
{
    struct control *k = calloc(1, sizeof(*k));
    struct dd_err err = {0};
    if (k == NULL)
        return NULL;
    *k = (struct control){.loop = loop, .uplink = uplink, .fd = -1, .last_id = CONTROL_IDS};
    int rc = local_socket_listen(&k->fd, &err);
    if (rc == 0)
        k->ev = event_new(loop->base, k->fd, EV_READ | EV_PERSIST, on_call, k);
    k->pause = evtimer_new(loop->base, on_pause, k);
    if (rc == 0 && k->ev != NULL && k->pause != NULL && event_add(k->ev, NULL) == 0)
        return k;
    dd_log(loop->cfg->log, DD_LOG_DEBUG, "event=no-control why=%s", err.text);
    control_free(k);
    return NULL;
}

void control_take(struct control *k, const struct msg_ctl_reply *m)
{
    struct caller *c;
    if (k == NULL || m->id <= CONTROL_IDS)
        return;
    LIST_FOREACH (c, &k->callers, entry)
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

void control_lost(struct control *k)
{
    struct caller *next;
    for (struct caller *c = k != NULL ? LIST_FIRST(&k->callers) : NULL; c != NULL; c = next) {
        next = LIST_NEXT(c, entry);
        if (c->id != 0 &&
            control_refuse(
                c, "this node's connection to the daemon ended before the daemon answered") < 0)
            control_drop(c);
    }
}

void control_free(struct control *k)
{
    if (k == NULL)
        return;
    if (k->ev != NULL)
        event_free(k->ev);
    if (k->pause != NULL)
        event_free(k->pause);
    if (k->fd >= 0)
        close(k->fd);
    if (!LIST_EMPTY(&k->callers))
        (void)event_base_loop(k->loop->base, EVLOOP_NONBLOCK); /* send the last replies */
    while (!LIST_EMPTY(&k->callers))
        control_drop(LIST_FIRST(&k->callers));
    free(k);
}
