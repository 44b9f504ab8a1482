/* The job: its round machine, the timers that drive it, its flags, and the messages that its
 * actions become. Everything that the daemon decides passes through job_step(). */
#ifndef DD_DAEMON_JOB_H
#define DD_DAEMON_JOB_H

#include "daemon/plan_cache.h"
#include "daemon/worker_events.h"

struct event_base;
struct job;

struct job_cfg { /* all that is pointed to is borrowed until job_free() */
    struct event_base *base;
    const struct dd_log *log;
    struct rdzv_cfg rdzv;
    struct session_set *sessions;
    struct journal *journal;
    const struct report_collect *report;
    struct plan_cache *plans;
    struct worker_events *worker_events;
    void (*round_over)(void *arg); /* the connections and keys of its workers go */
    /* The job has ended. True: something is still to be sent; ask again after *wait_ns. */
    bool (*waits)(void *arg, uint64_t *wait_ns);
    void (*over)(void *arg, int code); /* once: the daemon is needed no longer */
    void *arg;
};

int job_new(struct job **ret, const struct job_cfg *cfg, struct dd_err *err);
void job_free(struct job *j); /* NULL does nothing */

void job_step(struct job *j, const struct rdzv_event *e);
/* For queries; events go through job_step(). */
struct rdzv *job_machine(const struct job *j);
uint64_t job_start_ns(const struct job *j); /* of this daemon */

void job_publish(struct job *j, const struct journal_event *e);
/* True if `round` is the last one that has begun. */
bool job_is_round(const struct job *j, int round);

/* SIGUSR1 or SIGUSR2 becomes an event for the workers of the running round. */
void job_signal_workers(struct job *j, int sig);
/* Notes that the job is to end by request; returns whether this was known. The caller makes the
 * step. */
bool job_note_stop_request(struct job *j);
/* ddrund was signalled: stops the job unless an agent reports the signal first. */
void job_stop_soon(struct job *j);
/* What job_cfg.waits() was waiting for is done. */
void job_end_now(struct job *j);

/* The session has ended; frees s. bye: says goodbye to the agent. */
void job_lose_session(struct job *j, struct session *s, bool clean, const char *why, bool bye);
/* Another daemon goes on with the job: sends all agents there and begins nothing more here. */
void job_redirect(struct job *j, const char *addr);
const char *job_redirect_addr(const struct job *j); /* "": none */

#endif
