/* What the workers may learn of their round, under keys of its store that are ours: libddrun waits
 * for them. Src: docs/protocol/store-c10d.md, "Keys of ddrun". */
#include "daemon/inner.h"

#include "base/io.h"
#include "store/server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SAME_SIGNAL_S = 1 }; /* nodes are not signalled all at once */

static void tell(struct daemon *d, const char *word, int sig)
{
    char key[64], text[40];
    (void)snprintf(key, sizeof(key), "ddrun/%d/event/%d", rdzv_round(d->machine), d->told.events++);
    (void)snprintf(text, sizeof(text), "%s %d", word, sig);
    int rc = store_server_set(d->store, key, text);
    if (rc < 0)
        dd_log(d->cfg.log, DD_LOG_WARN, "the workers are not told '%s': %s", text, strerror(-rc));
}

/* From one agent, or from all of them, when the scheduler has signalled every node. */
void tell_signal(struct daemon *d, int sig)
{
    if ((sig != SIGUSR1 && sig != SIGUSR2) || rdzv_state(d->machine) != RDZV_RUNNING)
        return;
    uint64_t now = dd_now_ns();
    uint64_t *last = &d->told.signal_ns[sig == SIGUSR2];
    if (*last == 0 || now - *last >= SAME_SIGNAL_S * DD_NS_PER_S)
        tell(d, "signal", sig);
    *last = now;
}

/* When somebody wants the job to end, its workers may still have something to settle with each
 * other. When one of them has failed, those who wait for it wait in vain. */
void tell_stop(struct daemon *d, int sig)
{
    if (d->told.stop)
        return;
    d->told.stop = true;
    tell(d, "stop", sig);
    if (!d->asked)
        store_server_end_waits(d->store, "ddrun/");
}

void tell_new_round(struct daemon *d)
{
    d->told = (struct told){0};
}
