/* Writes trace events for Perfetto and chrome://tracing: a file is a JSON array with an object for
 * each event. Pure. Src: Trace Event Format (JSON Array Format). */
#ifndef DD_REPORT_TRACE_EVENTS_H
#define DD_REPORT_TRACE_EVENTS_H

#include "report/phases.h"

struct dd_buf;

enum trace_type { TRACE_SPAN, TRACE_INSTANT, TRACE_METADATA };
/* The thread of rank R is TRACE_TID_RANKS + R. Perfetto takes thread 0 of a process for its main
 * thread, and gives this thread the number of the process, which no other thread may have. */
enum { TRACE_PID_JOB = 0, TRACE_TID_NODE = 0, TRACE_TID_RANKS = 1000000 };

/* Return the thread of a rank; -1: of the node. */
static inline int trace_tid_of(int rank)
{
    return rank < 0 ? TRACE_TID_NODE : TRACE_TID_RANKS + rank;
}

/* Return the rank of a thread; -1: it is the thread of the node. */
static inline int trace_rank_of(int tid)
{
    return tid >= TRACE_TID_RANKS ? tid - TRACE_TID_RANKS : -1;
}

struct trace_event {
    enum trace_type type;
    const char *name;
    int pid, tid;
    uint64_t begin_ns, end_ns; /* wall-clock times */
    struct json_t *args;       /* owned by the callee; NULL: none */
};

/* Append the event on a line of its own, behind a separator: "[" if *started is false, "," if not.
 * The array is complete with TRACE_END after the last event; viewers accept a file without it. */
#define TRACE_END "\n]\n"
int trace_event_put(struct dd_buf *out, bool *started, const struct trace_event *e);
/* Append the name of a process (tid -1) or thread. */
int trace_event_put_name(struct dd_buf *out, bool *started, int pid, int tid, const char *name);
/* Append a phase of node `pid`, whose times are wall-clock times. round -1: the phase belongs to no
 * round. */
int trace_event_put_phase(struct dd_buf *out, bool *started, int pid, int round,
                          const struct phase *p);

#endif
