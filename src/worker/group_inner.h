/* What worker/group.c (start, signals) and worker/reap.c (ends) share. */
#ifndef DD_WORKER_GROUP_INNER_H
#define DD_WORKER_GROUP_INNER_H

#include "base/io.h"
#include "worker/children.h"
#include "worker/group.h"

struct event;

enum worker_state {
    WORKER_RUNNING,
    WORKER_REST, /* it has ended, others of its process group have not */
    WORKER_GONE,
};

struct worker {
    pid_t pid; /* session and process group too */
    int rank;
    enum worker_state state;
    uint64_t kill_at;    /* when its process group gets SIGKILL; 0: no time set */
    uint64_t give_up_at; /* SIGKILL was sent; waited for until then */
};

struct worker_group {
    struct event_base *base;
    const struct dd_log *log;
    struct worker_output *out;
    struct worker_group_cb cb;
    struct event *on_child;  /* SIGCHLD */
    struct event *on_tick;   /* deadlines */
    struct event *on_report; /* of children that exec late */
    int report_fd;
    struct pid_list protected; /* children that are not ours */
    struct pid_list strangers; /* orphans that were told to end */
    bool adopts;               /* orphans come to this process */
    int stop_sig;              /* the last that worker_group_stop() sent; 0: none */
    uint64_t stop_kill_at;     /* 0: not stopping */
    uint64_t strangers_since;  /* since when only strangers are left; 0: not yet */
    uint64_t strangers_give_up_at;
    bool draining; /* all processes are gone, output is read to the end */
    int n;
    struct worker w[];
};

/* What a worker or its process group may still be sent; ESRCH is no error. */
void reap_signal(const struct worker *w, int sig);
/* Collects what has ended, sends what is due, and finishes when nothing is left. May call back. */
void reap_step(struct worker_group *g);
/* SIGKILL to all and a short wait. No callbacks. */
void reap_all_now(struct worker_group *g);
/* Wakes reap_step() at the next deadline. */
void reap_schedule(struct worker_group *g);

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0)
        return a == 0 ? b : a;
    return a < b ? a : b;
}

#endif
