/* The metrics of the job: collects them from the events, the round machine and the store, for ddctl
 * and for the file of --metrics, which the leader's agent writes. Src: docs/metrics.md. */
#ifndef DD_DAEMON_JOB_METRICS_H
#define DD_DAEMON_JOB_METRICS_H

#include "base/buf.h"
#include "base/err.h"
#include "daemon/journal.h"
#include "daemon/notify.h"
#include "daemon/session.h"
#include "rdzv/machine.h"
#include "store/store_server.h"

struct event_base;
struct step_collect; /* daemon/step_collect.h */
struct job_metrics;

struct job_metrics_cfg { /* all pointers are borrowed until job_metrics_free() */
    struct event_base *base;
    const char *job_id;
    const struct rdzv_cfg *rdzv;
    const struct session_set *sessions;
    const struct store_server *store;
    const struct notify *notify; /* NULL: no web hook */
    uint64_t start_ns;           /* start of the leader's ddrun; 0: now */
};

int job_metrics_new(struct job_metrics **ret, struct journal *j, const struct job_metrics_cfg *cfg,
                    struct dd_err *err);
void job_metrics_free(struct job_metrics *m); /* NULL does nothing */
/* Set the parts that the daemon creates after the metrics; borrowed. */
void job_metrics_attach(struct job_metrics *m, const struct rdzv *machine,
                        const struct step_collect *steps);

void job_metrics_note_refused(struct job_metrics *m); /* one connection was refused */
/* Append the present metrics as text. 0, -ENOMEM or -EMSGSIZE. */
int job_metrics_text(const struct job_metrics *m, struct dd_buf *out);
/* Send the metrics to s now, whenever the state of the job changes, and every ten seconds. A later
 * call replaces s. */
void job_metrics_follow(struct job_metrics *m, struct session *s, int64_t id);
/* Return the profile of the store; owned by the caller. NULL: out of memory. */
struct json_t *job_metrics_profile(const struct job_metrics *m);
/* Send the profile to s once, when the job has ended. */
void job_metrics_follow_profile(struct job_metrics *m, struct session *s, int64_t id);
void job_metrics_forget(struct job_metrics *m, const struct session *s); /* s ends */

#endif
