/* --timeout: the leader ends the job after this time. An agent that has found no leader by then
 * gives up. */
#include "agent/inner.h"

#include "base/io.h"

#include <errno.h>
#include <signal.h>

enum { CODE = 124, AGAIN_MS = 100 }; /* as timeout(1) */

static void timeout_on_over(evutil_socket_t fd, short what, void *arg)
{
    struct agent *a = arg;
    const struct timeval again = dd_timeval(AGAIN_MS * DD_NS_PER_MS);
    char why[100];
    (void)fd;
    (void)what;
    if (!uplink_is_up(a->uplink) &&
        a->loop.machine.state != AM_LEAVING) /* failing over: retry when linked */
        evtimer_add(a->timeout, &again);
    (void)snprintf(why, sizeof(why), "--timeout of %.10g s reached",
                   (double)a->loop.cfg->timeout_ns / 1e9);
    if ((a->loop.machine.state == AM_SEEKING || a->loop.machine.state == AM_STARTING) &&
        a->history.last.n == 0 && a->loop.machine.sig == 0) {
        dd_log(a->loop.cfg->log, DD_LOG_ERR, "%s gave up: %s", a->loop.cfg->node_name, why);
        agent_step(&a->loop, (struct am_event){.kind = AM_FAILED, .code = CODE});
        return;
    }
    signals_stop(a, SIGTERM, CODE, why);
}

int timeout_start(struct agent *a, struct dd_err *err)
{
    const uint64_t gone = dd_now_ns() - a->loop.cfg->start_ns;
    const struct timeval left = dd_timeval(
        gone < a->loop.cfg->timeout_ns ? a->loop.cfg->timeout_ns - gone : 0);
    if (a->loop.cfg->timeout_ns == 0 || a->timeout != NULL)
        return 0;
    a->timeout = evtimer_new(a->loop.base, timeout_on_over, a);
    return a->timeout != NULL && evtimer_add(a->timeout, &left) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory");
}

void timeout_free(struct agent *a)
{
    if (a->timeout != NULL)
        event_free(DD_TAKE(a->timeout));
}
