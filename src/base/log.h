/* Logging. Each program passes a struct dd_log to its parts; there is no global state. The levels
 * ERR, WARN and NOTICE are messages for users; INFO and DEBUG add detail. */
#ifndef DD_BASE_LOG_H
#define DD_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum dd_log_level { DD_LOG_ERR, DD_LOG_WARN, DD_LOG_NOTICE, DD_LOG_INFO, DD_LOG_DEBUG };

/* Parts of the trace (docs/debugging.md), as bits. */
enum { DD_TRACE_MACHINE = 1, DD_TRACE_LINK = 2, DD_TRACE_ALL = 3 };

struct dd_screen;

struct dd_log {
    enum dd_log_level level; /* lines above this level are dropped */
    int fd;                  /* destination; -1: drop all lines */
    bool never_waits;  /* drop a line that would block, since other processes wait for this one */
    unsigned waits_ms; /* drop a line that cannot be written within this time; 0: no limit */
    struct dd_screen *screen; /* terminal with a status line; NULL: none */
    bool colours;             /* dd_log_has_colours() */
    unsigned trace;           /* enabled parts of the trace, independent of level */
    char who[80];             /* prefix of each line: "ddrun" or "ddrun[node2]" */
};

/* True if the environment wants colours in messages that go to fd. */
bool dd_log_has_colours(int fd);

/* Write one message, with its tips, by a single write(2); drop what exceeds 2 KiB. log may be NULL.
 * errno is preserved; %m works. */
void dd_log(const struct dd_log *log, enum dd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Write n bytes of further lines of a message, without the prefix; end the last line if text does
 * not. log may be NULL. */
void dd_log_more(const struct dd_log *log, const char *text, size_t n);

/* True if log traces this part, so that callers can skip the work for a trace line. log may be
 * NULL.
 */
static inline bool dd_traces(const struct dd_log *log, unsigned part)
{
    return log != NULL && (log->trace & part) != 0;
}

/* Write "WHO: trace: t=MONOTONIC wall=UNIX_TIME TEXT", with both clocks in seconds, if log traces
 * this part. */
void dd_trace(const struct dd_log *log, unsigned part, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copy text from a peer to out, with backslashes and all but printable ASCII as \xNN; drop what
 * does not fit. Return out. */
const char *dd_log_escape(char *out, unsigned long size, const void *text, unsigned long len);

#endif
