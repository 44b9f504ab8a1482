#include "daemon/signal_broadcast.h"

#include "base/io.h"
#include "base/sig.h"

#include <signal.h>

/* True for SIGUSR1 and SIGUSR2, unless the signal is a copy of one that was just sent. */
static bool signal_broadcast_is_new(struct signal_broadcast *b, struct session *from, int sig)
{
    const int which = sig == SIGUSR2;
    return (sig == SIGUSR1 || sig == SIGUSR2) &&
           !dd_signal_is_copy(sig, &b->sent_ns[which], &from->signal_ns[which], dd_now_ns());
}

void signal_broadcast_heard(struct signal_broadcast *b, struct session *from, int sig)
{
    if (signal_broadcast_is_new(b, from, sig))
        job_signal_workers(b->job, sig);
}

/* Forward the signal. id: of the question that SIGNALLED answers; 0: no answer is wanted. */
static void signal_broadcast_send(const struct signal_broadcast *b, struct session *from, int sig,
                                  bool end_near, int64_t id)
{
    dd_log(b->log, DD_LOG_DEBUG, "event=broadcast signal=%d from=%s", sig, from->name);
    job_publish(b->job,
                &(struct journal_event){.kind = JOURNAL_SIGNAL, .signal = sig, .node = from->name});
    job_signal_workers(b->job, sig);
    struct session *s;
    LIST_FOREACH (s, &from->set->sessions, entry)
        if (s->id >= 0)
            session_send(s, MSG(SIGNAL, .signal = sig, .end_near = end_near, .id = id));
}

void signal_broadcast(struct signal_broadcast *b, struct session *from, int sig, bool end_near)
{
    if (signal_broadcast_is_new(b, from, sig))
        signal_broadcast_send(b, from, sig, end_near, 0);
}

void signal_broadcast_counted(const struct signal_broadcast *b, struct session *from, int64_t id,
                              int sig)
{
    signal_broadcast_send(b, from, sig, false, signal_collect_begin(job_signals(b->job), from, id));
}
