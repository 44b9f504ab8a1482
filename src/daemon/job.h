/* The job: its round machine, the timers that drive the machine, the job's flags, and the messages
 * that carry out the machine's actions. Every decision of the daemon passes through job_step(). */
#ifndef DD_DAEMON_JOB_H
#define DD_DAEMON_JOB_H

#include "daemon/plan_cache.h"
#include "daemon/stacks_collect.h"
#include "daemon/signal_collect.h"
#include "daemon/usage_collect.h"
#include "daemon/worker_events.h"

struct event_base;
struct job;

/* When the stacks of all workers are read without a request of ddctl. */
struct job_stacks_cfg {
    bool on_failure, on_hang;
    bool all;          /* also read workers without Python frames */
    uint64_t limit_ns; /* time limit for all nodes together */
};

struct job_cfg { /* all pointers are borrowed until job_free() */
    struct event_base *base;
    const struct dd_log *log;
    struct rdzv_cfg rdzv;
    struct job_stacks_cfg stacks;
    struct session_set *sessions;
    struct journal *journal;
    const struct report_collect *report;
    struct plan_cache *plans;
    struct worker_events *worker_events;
    void (*round_over)(
        void *arg); /* close the connections of the round's workers and delete their keys */
    /* Called after the job has ended. True: data is still to be sent; call again after *wait_ns. */
    bool (*waits)(void *arg, uint64_t *wait_ns);
    void (*over)(void *arg, int code); /* called once: the daemon is no longer needed */
    void *arg;
};

int job_new(struct job **ret, const struct job_cfg *cfg, struct dd_err *err);
void job_free(struct job *j); /* NULL does nothing */

void job_step(struct job *j, const struct rdzv_event *e);
/* For queries only; events go through job_step(). */
struct rdzv *job_machine(const struct job *j);
struct stacks_collect *job_stacks(const struct job *j);
struct usage_collect *job_usage(const struct job *j);
struct signal_collect *job_signals(const struct job *j);
/* Record that the workers of this agent are idle, or that one is active again. Once the workers of
 * all nodes are idle, the agents get HUNG. */
void job_note_idle(struct job *j, struct session *s, const struct msg_idle *m);
/* A worker of this agent is hung: read the stacks of all workers, then send STACKS_TAKEN to all
 * agents. If the stacks are not to be read, send STACKS_TAKEN to this agent at once. */
void job_read_hang(struct job *j, struct session *s, int round);
uint64_t job_start_ns(const struct job *j); /* start time of this daemon */

void job_publish(struct job *j, const struct journal_event *e);
/* True if `round` is the latest round. */
bool job_is_round(const struct job *j, int round);

/* Publish SIGUSR1 or SIGUSR2 as an event for the workers of the running round. */
void job_signal_workers(struct job *j, int sig);
/* Record that the end of the job was requested; true: it was requested before. The caller performs
 * the step. */
bool job_note_stop_request(struct job *j);
/* Handle a signal to ddrund: stop the job, unless an agent reports the signal first. */
void job_stop_soon(struct job *j);
/* Called when the reason for which job_cfg.waits() returned true is gone. */
void job_end_now(struct job *j);

/* End the session and free s. bye: send BYE to the agent. */
void job_lose_session(struct job *j, struct session *s, bool clean, const char *why, bool bye);
/* Another daemon runs the job: redirect all agents to it and start nothing more here. */
void job_redirect(struct job *j, const char *addr);
const char *job_redirect_addr(const struct job *j); /* "": none */

#endif
