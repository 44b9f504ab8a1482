/* A child of the agent that writes log files: a file server that hangs keeps the child waiting, not
 * the agent, whose heartbeat would stop with it.
 *
 * Each file has a socket; what the agent sends there goes into the file, in order. The child reads
 * on only when the file has taken the bytes, so that the socket becomes full and the worker waits.
 * It ends when all sockets are closed and what was sent is written, also when the agent was killed.
 */
#ifndef DD_WORKER_WRITER_H
#define DD_WORKER_WRITER_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct writer;

struct writer_file {
    const char *path; /* NULL: none has this number */
    bool direct;      /* somebody else writes it: writer_direct() */
};

struct writer_spec {
    int (*prepare)(void *arg,
                   struct dd_err *err); /* in the child, before files are opened; NULL: nothing */
    const struct writer_file *files;
    int n;
    unsigned limit_ms; /* how long to wait for the files to be open */
    const struct dd_log *log;
    void (*on_end)(void *arg); /* after writer_finish(): all is written, or cannot be */
    void *arg;
};

/* Opens the files (in the child) and waits for that, but not longer than limit_ms. A file that
 * cannot be opened: its sentence. spec is borrowed during the call, its log and arg until free.
 * Gives *ret. */
int writer_new(struct writer **ret, struct event_base *base, const struct writer_spec *spec,
               struct dd_err *err);
/* The open file (given), or -1: it was not open in time, or is not direct. Once for each. */
int writer_direct(struct writer *w, int file);
/* A socket (given) whose bytes go into the file, or -errno with a sentence. */
int writer_socket(struct writer *w, int file, struct dd_err *err);
/* The size of a direct file as it was at the last call; asks for the next. */
uint64_t writer_size(struct writer *w, int file);
/* The sockets are closed: on_end comes, from the loop, when the child is done. */
void writer_finish(struct writer *w);
/* What it does not get done in a moment is lost. NULL is fine. */
void writer_free(struct writer *w);

#endif
