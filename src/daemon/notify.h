/* The web hook of --notify: one POST of JSON per event, by the helper ddrun-web, repeated until the
 * server accepts it. Nothing waits for it except the daemon at its end, for a moment.
 * Src: docs/notify.md. */
#ifndef DD_DAEMON_NOTIFY_H
#define DD_DAEMON_NOTIFY_H

#include "base/err.h"
#include "base/log.h"
#include "daemon/journal.h"

struct event_base;
struct notify;

struct notify_cfg { /* all is borrowed until notify_free() */
    struct event_base *base;
    const char *url, *job_id;
    const char *web_helper; /* path of ddrun-web */
    char *const *env;       /* for it; DDRUN_NOTIFY_TOKEN is read from it */
    const struct dd_log *log;
    void (*on_drained)(void *arg); /* after notify_waits() returned true: nothing is left to send */
    void *arg;
};

int notify_new(struct notify **ret, struct journal *j, const struct notify_cfg *cfg,
               struct dd_err *err);
void notify_free(struct notify *n); /* NULL does nothing; the journal is used no longer */
/* The daemon is about to end. True: events are still to be sent; ask again after *wait_ns, or once
 * on_drained() was called. */
bool notify_waits(struct notify *n, uint64_t *wait_ns);

#endif
