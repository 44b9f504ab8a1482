#include "agent/signal_before_end.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/round.h"
#include "agent/signals.h"
#include "agent/uplink.h"
#include "alloc/endtime.h"
#include "base/io.h"
#include "base/owner.h"
#include "base/sig.h"
#include "worker/command.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ASK_MS = 20000, LOOK_AGAIN_S = 30, AGAIN_MS = 500 };

struct signal_before_end {
    struct signal_before_end_parts parts;
    struct signal_before_end_cfg cfg;
    uint64_t end;       /* end of the allocation, in seconds since 1970; 0: unknown */
    uint64_t job_start; /* start of the job, in seconds since 1970; 0: unknown */
    const struct alloc_end_row *asked;
    struct command *ask;
    struct event *tick;
    bool sent;
};

static void send_signal(struct signal_before_end *t, uint64_t left_ns)
{
    int sig = t->cfg.sig;
    char text[200];
    (void)snprintf(text, sizeof(text), "the allocation ends in %.0f s", (double)left_ns / 1e9);
    t->sent = true;
    dd_log(t->parts.loop->cfg->log, DD_LOG_NOTICE, "%s: sending SIG%s to all workers", text,
           dd_signal_name(sig));
    if (dd_signal_ends_jobs(sig))
        signals_stop(t->parts.signals, sig, 0, text);
    else
        uplink_send(t->parts.uplink, MSG(SIGNAL_REQUEST, .signal = sig, .end_near = 1));
}

/* Send the signal when it is due, else arm the timer. The end is given in wall-clock time, which
 * may be set: compare again at least every LOOK_AGAIN_S. */
static void signal_before_end_look(struct signal_before_end *t)
{
    const struct agent_loop *l = t->parts.loop;
    uint64_t now = dd_now_real_ns();
    uint64_t end = t->end * DD_NS_PER_S;
    uint64_t at = end > t->cfg.ns ? end - t->cfg.ns : 0;
    bool running = l->machine.state == AM_RUNNING && round_is_running(t->parts.round) &&
                   uplink_is_up(t->parts.uplink);
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

static void signal_before_end_on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    signal_before_end_look(arg);
}

static void not_known(const struct signal_before_end *t, const char *why)
{
    dd_log(t->parts.loop->cfg->log, DD_LOG_WARN,
           "--signal-before-end: cannot determine the end of the allocation (%.200s); no signal "
           "will be sent",
           why);
}

static void signal_before_end_on_answer(void *arg, int code, const char *out)
{
    struct signal_before_end *t = arg;
    char line[240];
    (void)snprintf(line, sizeof(line), "the scheduler's command exited with code %d", code);
    if (code == 0 &&
        alloc_end_answer(t->asked, out, dd_now_real_ns() / DD_NS_PER_S, t->job_start, &t->end) == 0)
        signal_before_end_look(t);
    else
        not_known(t, code == 0 ? "the scheduler's reply contains no usable time limit"
                     : code == COMMAND_TOO_LATE ? "the scheduler does not respond"
                     : out[0] != '\0' ? dd_log_escape(line, sizeof(line), out, strcspn(out, "\n"))
                                      : line);
    command_free(t->ask);
    t->ask = NULL;
}

static void signal_before_end_ask(struct signal_before_end *t)
{
    char *const *env = t->parts.loop->cfg->env;
    const struct alloc *a = t->parts.loop->cfg->alloc;
    DD_AUTO(strv) struct dd_strv words = {0};
    struct dd_err err = {0};
    struct command_spec spec = {.env = env, .limit_ms = ASK_MS};
    t->asked = alloc_end_find(a != NULL ? a->source : "", env);
    if (t->asked == NULL) {
        not_known(t, "no scheduler found");
        return;
    }
    int rc = alloc_end_command(t->asked, env, &words, &spec.directory);
    spec.argv = (const char *const *)words.v;
    rc = rc < 0 ? dd_err_set(&err, rc, "out of memory")
                : command_start(&t->ask, t->parts.loop->base, &spec, signal_before_end_on_answer, t,
                                &err);
    if (rc < 0)
        not_known(t, err.text);
    else
        round_protect(t->parts.round, command_pid(t->ask));
}

/* Return the start of the job: PBS and Grid Engine start a job's script as a session leader. 0:
 * unknown. */
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

int signal_before_end_new(struct signal_before_end **ret,
                          const struct signal_before_end_parts *parts,
                          const struct signal_before_end_cfg *cfg)
{
    struct signal_before_end *t = *ret = calloc(1, sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    *t = (struct signal_before_end){.parts = *parts, .cfg = *cfg};
    return 0;
}

int signal_before_end_start(struct signal_before_end *t, struct dd_err *err)
{
    const struct agent_loop *l = t->parts.loop;
    if (t->cfg.sig == 0 || t->tick != NULL)
        return 0;
    t->tick = evtimer_new(l->base, signal_before_end_on_tick, t);
    if (t->tick == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    t->job_start = session_start_s();
    if (alloc_told_end_time(l->cfg->alloc != NULL ? l->cfg->alloc->source : "", l->cfg->env,
                            t->job_start, &t->end) < 0)
        signal_before_end_ask(t);
    else
        signal_before_end_look(t);
    return 0;
}

/* Wait first: the daemon treats a signal shortly after the last one as a copy of it. */
void signal_before_end_round(struct signal_before_end *t)
{
    const struct timeval tv = dd_timeval(AGAIN_MS * DD_NS_PER_MS);
    if (t->sent)
        evtimer_add(t->tick, &tv);
}

bool signal_before_end_is_sent(const struct signal_before_end *t)
{
    return t->sent;
}

void signal_before_end_stop(struct signal_before_end *t)
{
    command_free(DD_TAKE(t->ask));
    if (t->tick != NULL)
        event_free(DD_TAKE(t->tick));
    t->sent = false;
    t->end = 0;
}

void signal_before_end_free(struct signal_before_end *t)
{
    if (t != NULL)
        signal_before_end_stop(t);
    free(t);
}
