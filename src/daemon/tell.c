/* What the workers may learn of their round, under keys of its store that are ours: libddrun waits for
 * them. Src: docs/protocol/store-c10d.md, "Keys of ddrun". */
#include "daemon/inner.h"

#include "store/server.h"

#include <stdio.h>
#include <string.h>

static void tell(struct daemon *d, const char *word, int sig)
{
    char key[64], text[40];
    (void)snprintf(key, sizeof(key), "ddrun/%d/event/%d", rdzv_round(d->machine), d->told.events++);
    (void)snprintf(text, sizeof(text), "%s %d", word, sig);
    int rc = store_server_set(d->store, key, text);
    if (rc < 0)
        dd_log(d->cfg.log, DD_LOG_WARN, "the workers are not told '%s': %s", text, strerror(-rc));
}

void tell_signal(struct daemon *d, int sig)
{
    if (rdzv_state(d->machine) == RDZV_RUNNING)
        tell(d, "signal", sig);
}

/* When somebody wants the job to end, its workers may still have something to settle with each other.
 * When one of them has failed, those who wait for it wait in vain. */
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
