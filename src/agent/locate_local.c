#include "agent/locate_local.h"

#include "agent/agent.h"
#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

enum {
    CHECK_MS = 500,
    FOREIGN_MS = 2000, /* limit for a foreign listener: the owner of the port may be changing */
    SILENT_MS = 10000, /* limit for a silent listener: a starting daemon answers within this time */
};

struct locate_local {
    struct locate *where;
    const struct locate_leader *leader;
    const struct alloc *first; /* the allocation, with this node as the first one */
    struct alloc *follower;    /* a copy of the allocation, in which the daemon assigns this node's
                                  index; NULL: the port was free, or belongs to another node */
    struct event *check;
    struct dd_err taken; /* why this agent could not listen */
    struct locate_local_owner owner;
};

enum locate_local_step locate_local_judge(struct locate_local_owner *o, enum link_listener listener,
                                          uint64_t now_ms)
{
    const bool other = listener == LINK_LISTENER_FOREIGN || listener == LINK_LISTENER_SILENT;
    if (listener == LINK_LISTENER_UNKNOWN)
        return LOCATE_LOCAL_WAIT;
    if (other && !o->other)
        o->since_ms = now_ms;
    o->other = other;
    if (listener == LINK_LISTENER_NONE)
        return LOCATE_LOCAL_LEAD;
    if (!other) /* this job's daemon: the search reports what prevents joining */
        return LOCATE_LOCAL_WAIT;
    const uint64_t limit_ms = listener == LINK_LISTENER_SILENT ? SILENT_MS : FOREIGN_MS;
    return now_ms - o->since_ms < limit_ms ? LOCATE_LOCAL_WAIT : LOCATE_LOCAL_GIVE_UP;
}

static void check_again(struct locate_local *f)
{
    const struct timeval t = dd_timeval(CHECK_MS * DD_NS_PER_MS);
    evtimer_add(f->check, &t);
}

static bool can_listen(const struct locate_local *f)
{
    struct dd_err err = {0};
    uint16_t port;
    locate_set_alloc(f->where, f->first);
    DD_AUTO(fd) int fd = locate_bind(f->where, &port, &err);
    locate_set_alloc(f->where, f->follower);
    return fd >= 0;
}

/* No process listens on the port: try to lead. Bind first, because a program may hold the port
 * without listening, and a failed attempt to lead would restart the search and its timers. Returns
 * true if this agent leads. */
static bool lead_after_all(const struct locate_local *f)
{
    struct agent_loop *loop = f->where->loop;
    if (!can_listen(f))
        return false;
    locate_set_alloc(f->where, f->first);
    agent_step(loop, (struct am_event){.kind = AM_LEAD});
    return loop->machine.state == AM_LEADING;
}

static void on_check(evutil_socket_t fd, short what, void *arg)
{
    struct locate_local *f = arg;
    struct agent_loop *loop = f->where->loop;
    enum link_listener listener;
    (void)fd;
    (void)what;
    if (!locate_leader_listener(f->leader, &listener) || loop->machine.state != AM_SEEKING)
        return;
    switch (locate_local_judge(&f->owner, listener, dd_now_ns() / DD_NS_PER_MS)) {
    case LOCATE_LOCAL_LEAD:
        if (!lead_after_all(f))
            check_again(f);
        break;
    case LOCATE_LOCAL_GIVE_UP:
        agent_fail(loop, f->taken.text);
        break;
    case LOCATE_LOCAL_WAIT:
    default:
        check_again(f);
        break;
    }
}

int locate_local_start(struct locate_local *f, struct dd_err *err)
{
    const struct alloc *al = f->where->alloc;
    if (f->follower != NULL) { /* another agent has bound the port first, once more */
        locate_set_alloc(f->where, f->follower);
        return 0;
    }
    if (err->rc != -EADDRINUSE || !al->first_by_address)
        return err->rc;
    f->first = al;
    f->taken = *err;
    f->check = evtimer_new(f->where->loop->base, on_check, f);
    if (f->check == NULL || alloc_copy(&f->follower, al, -1) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    locate_set_alloc(f->where, f->follower);
    dd_log(f->where->loop->cfg->log, DD_LOG_INFO,
           "port %u is in use on this host; looking for this job's daemon there", al->ports[0]);
    check_again(f);
    return 0;
}

int locate_local_new(struct locate_local **ret, struct locate *where,
                     const struct locate_leader *leader)
{
    struct locate_local *f = *ret = calloc(1, sizeof(*f));
    if (f == NULL)
        return -1;
    f->where = where;
    f->leader = leader;
    return 0;
}

void locate_local_free(struct locate_local *f)
{
    if (f == NULL)
        return;
    if (f->check != NULL)
        event_free(f->check);
    alloc_free(f->follower);
    free(f);
}
