/* Reads the native frames of processes with eu-stack or gdb, where one is installed. The tool stops
 * a process while it reads the frames. */
#ifndef DD_AGENT_NATIVE_READER_H
#define DD_AGENT_NATIVE_READER_H

#include "agent/round.h"

struct native_reader;

struct native_reader_spec {
    const struct round *round;
    const pid_t *pids; /* read in this order, copied */
    size_t n;
    size_t parallel;
    unsigned limit_ms;      /* time limit for all processes */
    void (*end)(void *arg); /* all processes have been read, or the time is over; called from the
                               loop, and may free the reader */
    void *arg;
};

/* 0: end() will be called; -ENOENT: neither tool is in PATH, or another negative errno. The caller
 * owns *ret. */
int native_reader_start(struct native_reader **ret, const struct native_reader_spec *spec);
/* Return the frames of a process in the form of report/stacks.h; "": there are none. Lent. */
const char *native_reader_frames(const struct native_reader *r, size_t index);
/* Return the reason why a process has no frames, lent; "": unknown. */
const char *native_reader_note(const struct native_reader *r, size_t index);
void native_reader_free(struct native_reader *r); /* without a callback; NULL is fine */

#endif
