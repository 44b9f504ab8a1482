/* The web hook of --notify: one HTTP POST of JSON per event, sent by the helper ddrun-web and
 * retried until the server accepts or refuses it. Nothing waits for the hook, except that the
 * daemon delays its exit briefly. Src: docs/notify.md. */
#ifndef DD_DAEMON_NOTIFY_H
#define DD_DAEMON_NOTIFY_H

#include "base/err.h"
#include "base/log.h"
#include "daemon/journal.h"

struct event_base;
struct notify;

struct notify_cfg { /* all pointers are borrowed until notify_free() */
    struct event_base *base;
    const char *url, *job_id;
    const char *web_helper; /* path of ddrun-web */
    char *const *env;       /* environment of ddrun-web; contains DDRUN_NOTIFY_TOKEN */
    const struct dd_log *log;
    void (*on_drained)(
        void *arg); /* called after notify_waits() returned true, once nothing is left to send */
    void *arg;
};

int notify_new(struct notify **ret, struct journal *j, const struct notify_cfg *cfg,
               struct dd_err *err);
void notify_free(struct notify *n); /* NULL does nothing; the journal must not be used afterwards */
uint64_t notify_queued(const struct notify *n);  /* events that the server has not accepted yet */
uint64_t notify_dropped(const struct notify *n); /* events dropped so far */
/* Called when the daemon is about to end. True: events are still to be sent; call again after
 * *wait_ns or from on_drained(). */
bool notify_waits(struct notify *n, uint64_t *wait_ns);

#endif
