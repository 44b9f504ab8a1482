/* Shared by worker/worker_group.c (start, signals) and worker/reap.c (exits). */
#ifndef DD_WORKER_WORKER_GROUP_INNER_H
#define DD_WORKER_WORKER_GROUP_INNER_H

#include "base/io.h"
#include "worker/children.h"
#include "worker/worker_group.h"

struct event;

enum worker_state {
    WORKER_RUNNING,
    WORKER_REST, /* the worker has exited, but other processes of its group have not */
    WORKER_GONE,
};

struct worker {
    pid_t pid; /* also the session and the process group */
    int rank;
    uint64_t started_ns; /* time of the fork */
    enum worker_state state;
    uint64_t look_at;    /* WORKER_REST: when to search /proc for processes that are no zombies */
    uint64_t kill_at;    /* time of SIGKILL for the process group; 0: none */
    uint64_t give_up_at; /* time at which to give up, once SIGKILL has been sent; 0: not sent */
};

struct worker_group {
    struct event_base *base;
    const struct dd_log *log;
    struct worker_output *out;
    void (*on_exit)(void *arg, const struct worker_exit *e);
    void (*on_empty)(void *arg);
    void *arg;
    struct event *on_child;  /* SIGCHLD */
    struct event *on_tick;   /* deadlines */
    struct event *on_report; /* late reports of children that exec slowly */
    int report_fd;
    struct pid_list protected; /* children of the agent that are not workers */
    struct pid_list strangers; /* orphans that have been signalled */
    bool adopts;               /* orphans are reparented to this process */
    int stop_sig;              /* last signal of worker_group_stop() or _has_signal(); 0: none */
    uint64_t stop_kill_at;     /* time of SIGKILL for all workers; 0: not stopping */
    uint64_t strangers_since;  /* since when only orphans are left; 0: others are left */
    uint64_t strangers_give_up_at; /* time at which to give up orphans after SIGKILL; 0: not sent */
    bool draining; /* all processes have exited, and their output is being finished */
    int n;
    struct worker w[];
};

/* Signal the process group of a worker, as long as it exists. */
void reap_signal(const struct worker *w, int sig);
/* Reap exited children, send signals that are due, and finish when no process is left. May call
 * callbacks. */
void reap_step(struct worker_group *g);
/* Send SIGKILL to all processes and wait at most 5 s for their exit. No callbacks. */
void reap_all_now(struct worker_group *g);
/* Schedule reap_step() for the next deadline. */
void reap_schedule(struct worker_group *g);

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0)
        return a == 0 ? b : a;
    return a < b ? a : b;
}

#endif
