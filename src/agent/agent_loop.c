#include "agent/agent_loop.h"

#include "agent/agent.h"
#include "base/io.h"
#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>

/* While the machine has a timer, the loop wakes at least every LOOK_MS. If it wakes more than
 * LATE_MS late, this process was suspended, and the timers are postponed: a job that a scheduler
 * has suspended must not find its time limits exceeded when it resumes. */
enum { LOOK_MS = 1000, LATE_MS = 1000 };

static uint64_t now_ms(void)
{
    return dd_now_ns() / DD_NS_PER_MS;
}

static void agent_loop_set_timer(struct agent_loop *l)
{
    const uint64_t at = agent_machine_timer(&l->machine);
    const uint64_t now = now_ms();
    const uint64_t left = at > now ? at - now : 0;
    const uint64_t wait_ms = left < LOOK_MS ? left : LOOK_MS;
    const struct timeval wait = dd_timeval(wait_ms * DD_NS_PER_MS);
    evtimer_del(l->timer);
    l->wakes_ms = at != RDZV_NEVER ? now + wait_ms : 0;
    if (at != RDZV_NEVER)
        evtimer_add(l->timer, &wait);
}

static void agent_loop_forgive(struct agent_loop *l)
{
    const uint64_t now = now_ms();
    if (l->wakes_ms == 0 || now <= l->wakes_ms + LATE_MS)
        return;
    agent_machine_postpone(&l->machine, now - l->wakes_ms);
    l->wakes_ms = now;
}

static void trace_step(const struct agent_loop *l, enum am_state from, enum am_event_kind on)
{
    dd_trace(l->cfg->log, DD_TRACE_MACHINE, "machine=agent node=%s from=%s on=%s to=%s round=%d",
             l->cfg->node_name, agent_machine_state_name(from), agent_machine_event_name(on),
             agent_machine_state_name(l->machine.state), l->round);
}

/* An action may raise another event. The actions of that event are appended to the queue. */
void agent_step(struct agent_loop *l, struct am_event e)
{
    struct am_action next;
    const enum am_state from = l->machine.state;
    agent_loop_forgive(l);
    agent_machine_step(&l->machine, &e, now_ms());
    trace_step(l, from, e.kind);
    if (l->acting)
        return;
    l->acting = true;
    while (agent_machine_next(&l->machine, &next))
        l->act(l->arg, &next);
    l->acting = false;
    agent_loop_set_timer(l);
}

static void agent_loop_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct agent_loop *l = arg;
    enum am_event_kind due;
    (void)fd;
    (void)what;
    agent_loop_forgive(l);
    while ((due = agent_machine_due(&l->machine, now_ms())) != AM_EVENTS)
        agent_step(l, (struct am_event){.kind = due});
    agent_loop_set_timer(l);
}

void agent_fail(struct agent_loop *l, const char *why)
{
    dd_log(l->cfg->log, DD_LOG_ERR, "%s", why);
    agent_step(l, (struct am_event){.kind = AM_FAILED, .code = 2});
}

void agent_because(struct agent_loop *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(l->why, sizeof(l->why), fmt, ap);
    va_end(ap);
}

void agent_loop_time_left(const struct agent_loop *l, enum am_event_kind timer,
                          char out[DD_DURATION_TEXT])
{
    const uint64_t at = l->machine.due[timer - AM_FIRST_TIMER];
    const uint64_t now = now_ms();
    const uint64_t usual_ns = timer == AM_FAIL_OVER_LIMIT ? l->cfg->rdzv.rejoin_ns
                                                          : l->cfg->rdzv_timeout_ns;
    const uint64_t left_ms = at == RDZV_NEVER ? usual_ns / DD_NS_PER_MS : at > now ? at - now : 0;
    dd_num_duration_text(out, (left_ms + 999) / 1000);
}

void agent_loop_set_index(struct agent_loop *l, int index)
{
    agent_machine_set_index(&l->machine, index);
}

void agent_loop_set_round(struct agent_loop *l, int round)
{
    l->round = round;
}

/* ---- start and end ---- */

int agent_loop_init(struct agent_loop *l, const struct agent_cfg *cfg, const struct am_cfg *machine,
                    const struct rdzv_members *last, struct dd_err *err)
{
    *l = (struct agent_loop){.cfg = cfg, .machine_cfg = *machine, .round = -1};
    agent_machine_init(&l->machine, &l->machine_cfg, last);
    agent_machine_set_index(&l->machine, cfg->alloc->index);
    l->base = net_loop_new();
    l->timer = l->base != NULL ? evtimer_new(l->base, agent_loop_on_timer, l) : NULL;
    return l->timer == NULL
               ? dd_err_set(err, -ENOMEM,
                            "cannot create the event loop: out of memory or file descriptors")
               : 0;
}

void agent_loop_set_act(struct agent_loop *l, agent_act_f *act, void *arg)
{
    l->act = act;
    l->arg = arg;
}

int agent_loop_run(struct agent_loop *l)
{
    if (!l->machine.gone)
        event_base_dispatch(l->base);
    return l->machine.code;
}

void agent_loop_exit(struct agent_loop *l)
{
    event_base_loopbreak(l->base);
}

void agent_loop_done(struct agent_loop *l)
{
    if (l->timer != NULL)
        event_free(l->timer);
    if (l->base != NULL)
        event_base_free(l->base);
}
