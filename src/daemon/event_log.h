/* The last events of the job as lines of JSON, for ddctl. Followers also receive further events as
 * they happen. Src: docs/protocol/control-1.md. */
#ifndef DD_DAEMON_EVENT_LOG_H
#define DD_DAEMON_EVENT_LOG_H

#include "base/buf.h"
#include "daemon/journal.h"

enum { EVENT_LOG_KEPT = 1000 /* events */, EVENT_LOG_FOLLOWERS = 32 };

struct session;
struct event_log;

/* Send a part of the answer to request `id` of that session. < 0: it cannot be sent. */
typedef int event_log_send_f(struct session *to, int64_t id, const char *text, size_t n, bool ends);

int event_log_new(struct event_log **ret, struct journal *j, event_log_send_f *send); /* -ENOMEM */
void event_log_free(
    struct event_log *l); /* NULL does nothing; the journal must not be used afterwards */

/* Answer with all kept events and, if follow is set, with further ones until FINISH. If there are
 * EVENT_LOG_FOLLOWERS followers already, end the answer after the kept events. */
void event_log_follow(struct event_log *l, struct session *s, int64_t id, bool follow);
/* Stop following. id -1: all requests of that session. */
void event_log_forget(struct event_log *l, const struct session *s, int64_t id);
/* Append the first 64 kept EXIT events of that round as JSON objects separated by commas. */
void event_log_exits(const struct event_log *l, int round, struct dd_buf *out);

#endif
