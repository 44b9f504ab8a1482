/* Several agents of one host, started with the same --rdzv-endpoint and no --node-rank: each
 * agent takes the endpoint for its own host. The agent that binds the port starts the daemon. The
 * others join the daemon if it belongs to this job. */
#include "agent/inner.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>

enum {
    CHECK_MS = 500,
    FOREIGN_MS = 2000, /* the owner of the port may be changing */
    SILENT_MS = 10000, /* a starting daemon answers within this time */
};

struct locate_local {
    struct agent *agent;
    const struct agent_cfg *first_cfg; /* configuration as the first node */
    struct agent_cfg cfg;              /* the same, as a node whose index the daemon assigns */
    struct alloc *alloc;
    struct event *check;
    struct dd_err taken; /* why this agent could not listen */
    uint64_t since_ns;
};

void locate_local_free(struct agent *a)
{
    struct locate_local *f = a->locate_local;
    if (f == NULL)
        return;
    if (f->check != NULL)
        event_free(f->check);
    alloc_free(f->alloc);
    free(f);
    a->locate_local = NULL;
}

static void check_again(struct locate_local *f)
{
    const struct timeval t = dd_timeval(CHECK_MS * DD_NS_PER_MS);
    evtimer_add(f->check, &t);
}

static bool can_listen(const struct locate_local *f)
{
    struct agent *a = f->agent;
    struct dd_err err = {0};
    uint16_t port;
    a->loop.cfg = f->first_cfg;
    DD_AUTO(fd) int fd = locate_bind(a, &port, &err);
    a->loop.cfg = &f->cfg;
    return fd >= 0;
}

/* No process listens on the port: try to lead. Bind first, because a program may hold the port
 * without listening, and a failed attempt to lead would restart the search and its timers. Returns
 * true if this agent leads. */
static bool lead_after_all(struct locate_local *f)
{
    struct agent *a = f->agent;
    if (!can_listen(f))
        return false;
    a->loop.cfg = f->first_cfg;
    agent_step(&a->loop, (struct am_event){.kind = AM_LEAD});
    return a->loop.machine.state == AM_LEADING;
}

static void on_check(evutil_socket_t fd, short what, void *arg)
{
    struct locate_local *f = arg;
    struct agent *a = f->agent;
    const uint64_t waited_ms = (dd_now_ns() - f->since_ns) / DD_NS_PER_MS;
    (void)fd;
    (void)what;
    if (a->locate_leader.find == NULL || a->loop.machine.state != AM_SEEKING)
        return;
    switch (link_find_listener(a->locate_leader.find)) {
    case LINK_LISTENER_NONE:
        if (lead_after_all(f))
            return;
        break;
    case LINK_LISTENER_FOREIGN:
    case LINK_LISTENER_SILENT:
        if (waited_ms < (link_find_listener(a->locate_leader.find) == LINK_LISTENER_SILENT
                             ? SILENT_MS
                             : FOREIGN_MS))
            break;
        agent_fail(&a->loop, f->taken.text);
        return;
    case LINK_LISTENER_OURS: /* the search reports what prevents joining */
    case LINK_LISTENER_UNKNOWN:
    default:
        break;
    }
    check_again(f);
}

int locate_local_start(struct agent *a, struct dd_err *err)
{
    const struct alloc *al = a->loop.cfg->alloc;
    struct locate_local *f = a->locate_local;
    if (f != NULL) { /* another agent has bound the port first again */
        a->loop.cfg = &f->cfg;
        return 0;
    }
    if (err->rc != -EADDRINUSE || !al->first_by_address)
        return err->rc;
    f = calloc(1, sizeof(*f));
    if (f == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->locate_local = f;
    *f = (struct locate_local){.agent = a,
                               .first_cfg = a->loop.cfg,
                               .cfg = *a->loop.cfg,
                               .taken = *err,
                               .since_ns = dd_now_ns()};
    f->check = evtimer_new(a->loop.base, on_check, f);
    if (f->check == NULL || alloc_copy(&f->alloc, al, -1) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    f->cfg.alloc = f->alloc;
    a->loop.cfg = &f->cfg;
    dd_log(a->loop.cfg->log, DD_LOG_INFO,
           "port %u is in use on this host; looking for this job's daemon there", al->ports[0]);
    check_again(f);
    return 0;
}
