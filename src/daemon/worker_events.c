#include "daemon/worker_events.h"

#include "base/io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void worker_events_put(struct worker_events *w, int round, const char *event, int sig)
{
    char key[64], text[40];
    (void)snprintf(key, sizeof(key), "ddrun/%d/event/%d", round, w->n++);
    (void)snprintf(text, sizeof(text), "%s %d", event, sig);
    int rc = store_server_set(w->store, key, text);
    if (rc < 0)
        dd_log(w->log, DD_LOG_WARN, "cannot publish '%s' to the workers: %s", text,
               rc == -ENOSPC ? "the store is full" : strerror(-rc));
}

void worker_events_signal(struct worker_events *w, int round, int sig)
{
    if (sig == SIGUSR1 || sig == SIGUSR2)
        worker_events_put(w, round, "signal", sig);
}

void worker_events_stop(struct worker_events *w, int round, int sig, bool requested)
{
    if (w->stopped)
        return;
    w->stopped = true;
    worker_events_put(w, round, "stop", sig);
    if (!requested)
        store_server_end_waits(w->store, "ddrun/");
}

void worker_events_new_round(struct worker_events *w)
{
    *w = (struct worker_events){.store = w->store, .log = w->log};
}
