#include "agent/timeout.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>

enum { CODE = 124, AGAIN_MS = 100 }; /* CODE: exit code, as of timeout(1) */

struct timeout {
    struct timeout_parts parts;
    uint64_t ns;
    struct event *ev; /* NULL: no limit, not started, or another node leads */
};

static void timeout_on_over(evutil_socket_t fd, short what, void *arg)
{
    struct timeout *t = arg;
    struct agent_loop *l = t->parts.loop;
    const enum am_state state = l->machine.state;
    const struct timeval again = dd_timeval(AGAIN_MS * DD_NS_PER_MS);
    char why[100];
    (void)fd;
    (void)what;
    if (!uplink_is_up(t->parts.uplink) && state != AM_LEAVING)
        evtimer_add(t->ev, &again); /* failing over: retry when linked */
    (void)snprintf(why, sizeof(why), "--timeout of %.10g s reached", (double)t->ns / 1e9);
    if ((state == AM_SEEKING || state == AM_STARTING) && t->parts.history->last.n == 0 &&
        l->machine.sig == 0) {
        dd_log(l->cfg->log, DD_LOG_ERR, "%s gave up: %s", l->cfg->node_name, why);
        agent_step(l, (struct am_event){.kind = AM_FAILED, .code = CODE});
        return;
    }
    signals_stop(t->parts.signals, SIGTERM, CODE, why);
}

int timeout_new(struct timeout **ret, const struct timeout_parts *parts, uint64_t ns)
{
    struct timeout *t = *ret = calloc(1, sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    *t = (struct timeout){.parts = *parts, .ns = ns};
    return 0;
}

int timeout_start(struct timeout *t, struct dd_err *err)
{
    const struct agent_loop *l = t->parts.loop;
    const uint64_t gone = dd_now_ns() - l->cfg->start_ns;
    const struct timeval left = dd_timeval(gone < t->ns ? t->ns - gone : 0);
    if (t->ns == 0 || t->ev != NULL)
        return 0;
    t->ev = evtimer_new(l->base, timeout_on_over, t);
    return t->ev != NULL && evtimer_add(t->ev, &left) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory");
}

void timeout_stop(struct timeout *t)
{
    if (t->ev != NULL)
        event_free(DD_TAKE(t->ev));
}

void timeout_free(struct timeout *t)
{
    if (t != NULL)
        timeout_stop(t);
    free(t);
}
