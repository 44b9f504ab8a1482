/* --signal-before-end: the leader learns from the environment, or by one command of the scheduler,
 * when the allocation ends. At the configured time before that, it sends the signal to the workers
 * of all nodes. */
#include "agent/inner.h"

#include "alloc/endtime.h"
#include "base/io.h"
#include "base/owner.h"
#include "base/sig.h"
#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ASK_MS = 20000, LOOK_AGAIN_S = 30, AGAIN_MS = 500 };

struct endtime {
    struct agent *agent;
    uint64_t end;       /* seconds since 1970; 0: not known */
    uint64_t job_start; /* the same */
    const struct alloc_end_row *asked;
    struct command *ask;
    struct event *tick;
    bool sent;
};

static void send_signal(struct endtime *t, uint64_t left_ns)
{
    struct agent *a = t->agent;
    int sig = a->loop.cfg->before_end.sig;
    char text[200];
    (void)snprintf(text, sizeof(text), "the allocation ends in %.0f s", (double)left_ns / 1e9);
    t->sent = true;
    dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "%s: sending SIG%s to all workers", text,
           dd_signal_name(sig));
    if (dd_signal_ends_jobs(sig))
        signals_stop(a, sig, 0, text);
    else
        uplink_send(a->uplink, MSG(SIGNAL_REQUEST, .signal = sig, .end_near = 1));
}

/* Send the signal when it is due, else arm the timer. The end is given in wall-clock time, which
 * may be set: compare again at least every LOOK_AGAIN_S. */
static void endtime_look(struct endtime *t)
{
    const struct agent *a = t->agent;
    uint64_t now = dd_now_real_ns();
    uint64_t end = t->end * DD_NS_PER_S;
    uint64_t at = end > a->loop.cfg->before_end.ns ? end - a->loop.cfg->before_end.ns : 0;
    bool running = a->loop.machine.state == AM_RUNNING && uplink_is_up(a->uplink);
    uint64_t wait = at > now ? at - now : DD_NS_PER_S; /* due, but no workers run at the moment */
    if (at <= now && running) {
        send_signal(t, end > now ? end - now : 0);
        return;
    }
    if (wait > LOOK_AGAIN_S * DD_NS_PER_S)
        wait = LOOK_AGAIN_S * DD_NS_PER_S;
    const struct timeval tv = dd_timeval(wait);
    evtimer_add(t->tick, &tv);
}

static void endtime_on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    endtime_look(arg);
}

static void not_known(const struct endtime *t, const char *why)
{
    dd_log(t->agent->loop.cfg->log, DD_LOG_WARN,
           "--signal-before-end: cannot determine the end of the allocation (%.200s); no signal "
           "will be sent",
           why);
}

static void endtime_on_answer(void *arg, int code, const char *out)
{
    struct endtime *t = arg;
    if (code == 0 &&
        alloc_end_answer(t->asked, out, dd_now_real_ns() / DD_NS_PER_S, t->job_start, &t->end) == 0)
        endtime_look(t);
    else
        not_known(t, code == 0 ? "the scheduler reports no time limit for the job"
                               : "the scheduler does not respond");
    command_free(t->ask);
    t->ask = NULL;
}

static void endtime_ask(struct endtime *t)
{
    char *const *env = t->agent->loop.cfg->env;
    const struct alloc *a = t->agent->loop.cfg->alloc;
    DD_AUTO(strv) struct dd_strv words = {0};
    struct dd_err err = {0};
    struct command_spec spec = {.env = env, .limit_ms = ASK_MS};
    t->asked = alloc_end_find(a != NULL ? a->source : "", env);
    if (t->asked == NULL) {
        not_known(t, "no scheduler found");
        return;
    }
    int rc = alloc_end_command(t->asked, env, &words, &spec.folder);
    spec.argv = (const char *const *)words.v;
    rc = rc < 0 ? dd_err_set(&err, rc, "out of memory")
                : command_start(&t->ask, t->agent->loop.base, &spec, endtime_on_answer, t, &err);
    if (rc < 0)
        not_known(t, err.text);
    else
        rounds_protect(t->agent, command_pid(t->ask));
}

/* Start of the job: PBS and Grid Engine start a job's script as a session leader. 0: unknown. */
static uint64_t session_start_s(void)
{
    struct timespec up;
    const uint64_t ticks = dd_process_start(getsid(0));
    const uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    if (ticks == 0 || hz == 0 || clock_gettime(CLOCK_BOOTTIME, &up) < 0 ||
        (uint64_t)up.tv_sec < ticks / hz)
        return 0;
    return dd_now_real_ns() / DD_NS_PER_S - ((uint64_t)up.tv_sec - ticks / hz);
}

int endtime_start(struct agent *a, struct dd_err *err)
{
    if (a->loop.cfg->before_end.sig == 0 || a->endtime != NULL)
        return 0;
    struct endtime *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->endtime = t;
    t->agent = a;
    t->tick = evtimer_new(a->loop.base, endtime_on_tick, t);
    if (t->tick == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    t->job_start = session_start_s();
    if (alloc_told_end_time(a->loop.cfg->alloc != NULL ? a->loop.cfg->alloc->source : "",
                            a->loop.cfg->env, t->job_start, &t->end) < 0)
        endtime_ask(t);
    else
        endtime_look(t);
    return 0;
}

/* Send the signal again to the workers of a new round. Delayed, because the daemon treats a signal
 * shortly after the last one as a copy of it. */
void endtime_round(struct agent *a)
{
    const struct timeval tv = dd_timeval(AGAIN_MS * DD_NS_PER_MS);
    if (a->endtime != NULL && a->endtime->sent)
        evtimer_add(a->endtime->tick, &tv);
}

bool endtime_is_near(const struct agent *a)
{
    return a->endtime != NULL && a->endtime->sent;
}

void endtime_free(struct agent *a)
{
    struct endtime *t = a->endtime;
    if (t == NULL)
        return;
    command_free(t->ask);
    if (t->tick != NULL)
        event_free(t->tick);
    free(t);
    a->endtime = NULL;
}
