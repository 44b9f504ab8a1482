/* Signals that announce something: from one agent to the workers of all nodes. */
#include "daemon/inner.h"

#include "base/io.h"

#include <signal.h>

/* Whoever signals a whole job reaches several agents, and each passes it on. */
enum { SAME_SIGNAL_MS = 250 };

bool guests_announce(struct guest *from, int sig, bool end_near)
{
    struct daemon *d = from->daemon;
    if (sig != SIGUSR1 && sig != SIGUSR2)
        return false;
    uint64_t now = dd_now_ns();
    uint64_t *last = &d->announced_ns[sig == SIGUSR2];
    if (*last != 0 && now - *last < SAME_SIGNAL_MS * DD_NS_PER_MS)
        return false;
    *last = now;
    dd_log(d->cfg.log, DD_LOG_DEBUG, "event=announce signal=%d from=%s", sig, from->name);
    events_add(d, &(struct happened){.kind = EVENT_SIGNAL, .signal = sig, .node = from->name});
    tell_signal(d, sig);
    struct guest *g;
    LIST_FOREACH(g, &d->guests, entry)
        if (g->id >= 0)
            guest_send(g, &(struct msg){.type = MSG_SIGNAL, .signal = sig, .end_near = end_near});
    return true;
}
