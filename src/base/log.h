/* Log lines: key=value text, one event one line. The rooms write through a struct dd_log that the
 * program hands them; nothing here is global. User-facing sentences go through it too, as
 * DD_LOG_ERR, _WARN and _NOTICE. */
#ifndef DD_BASE_LOG_H
#define DD_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum dd_log_level { DD_LOG_ERR, DD_LOG_WARN, DD_LOG_NOTICE, DD_LOG_INFO, DD_LOG_DEBUG };

/* Parts of the trace (docs/debugging.md), as bits. */
enum { DD_TRACE_MACHINE = 1, DD_TRACE_LINK = 2, DD_TRACE_ALL = 3 };

struct dd_log {
    enum dd_log_level level; /* lines above this level are dropped */
    int fd;                  /* where lines go; -1 drops all */
    bool never_waits;  /* a line that cannot be written at once is dropped: others wait for us */
    unsigned waits_ms; /* a line that cannot be written within this time is dropped; 0: any time it
                          takes */
    unsigned trace;    /* parts of the trace that are written, whatever the level */
    char who[80];      /* put in front of each line: "ddrun" or "ddrun[node2]" */
};

/* Writes one whole line with one write(2). NULL log is allowed. errno is kept; %m works. */
void dd_log(const struct dd_log *log, enum dd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Callers skip the work for a trace line that nobody has asked for. NULL log is allowed. */
static inline bool dd_traces(const struct dd_log *log, unsigned part)
{
    return log != NULL && (log->trace & part) != 0;
}

/* Writes "WHO: trace: t=MONOTONIC wall=UNIX_TIME TEXT", with both clocks in seconds, if log traces
 * this part. */
void dd_trace(const struct dd_log *log, unsigned part, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies text that a peer sent into out, with everything but printable ASCII as \xNN; returns out.
 */
const char *dd_log_escape(char *out, unsigned long size, const void *text, unsigned long len);

#endif
