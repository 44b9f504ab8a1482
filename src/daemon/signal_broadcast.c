/* Signals that announce something: from one agent to the workers of all nodes. */
#include "daemon/inner.h"

#include "base/io.h"
#include "base/sig.h"

#include <signal.h>

bool guests_announce(struct guest *from, int sig, bool end_near)
{
    struct daemon *d = from->daemon;
    if (sig != SIGUSR1 && sig != SIGUSR2)
        return false;
    const int which = sig == SIGUSR2;
    if (dd_signal_is_copy(&d->announced_ns[which], &from->asked_ns[which], dd_now_ns()))
        return false;
    dd_log(d->cfg.log, DD_LOG_DEBUG, "event=announce signal=%d from=%s", sig, from->name);
    events_add(d, &(struct happened){.kind = EVENT_SIGNAL, .signal = sig, .node = from->name});
    tell_signal(d, sig);
    struct guest *g;
    LIST_FOREACH (g, &d->guests, entry)
        if (g->id >= 0)
            guest_send(g, MSG(SIGNAL, .signal = sig, .end_near = end_near));
    return true;
}
