/* Writes log files in a child process of the agent: a file server that hangs blocks the child, not
 * the agent and its heartbeat. The agent sends the bytes of each file over a socket. The child
 * reads a socket only after it has written what it has read, so that the socket becomes full and
 * the worker waits. The child exits when all sockets are closed and all bytes are written, even if
 * the agent has been killed. */
#ifndef DD_WORKER_WRITER_H
#define DD_WORKER_WRITER_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct writer;

struct writer_file {
    const char *path; /* NULL: this number is unused */
    bool direct;      /* a worker writes the file itself: writer_direct() */
};

struct writer_spec {
    int (*prepare)(
        void *arg,
        struct dd_err *err); /* called in the child before the files are opened; NULL: nothing */
    const struct writer_file *files;
    int n;
    unsigned limit_ms; /* time limit for opening the files */
    const struct dd_log *log;
    void (*on_end)(
        void *arg); /* called when the child exits, early or after writer_finish(), and also by
                       writer_finish() after an early exit: nothing more will be written */
    void *arg;
};

/* Let the child open the files, and wait for that for at most limit_ms. If they are not open by
 * then, warn and return 0. If a file cannot be opened, the message says why. spec is borrowed
 * during the call, its log and arg until free. The caller owns *ret. */
int writer_new(struct writer **ret, struct event_base *base, const struct writer_spec *spec,
               struct dd_err *err);
/* Return the descriptor of an open file; the caller owns it. -1: not open in time, or not direct.
 * To be called once for each file. */
int writer_direct(struct writer *w, int file);
/* Return a socket whose bytes go to the file; the caller owns it. Otherwise -errno with a message.
 */
int writer_socket(struct writer *w, int file, struct dd_err *err);
/* Return the size of a direct file at the time of the last call, and request its present size. */
uint64_t writer_size(struct writer *w, int file);
/* To be called after the sockets are closed: on_end is called from the loop when the child has
 * finished. */
void writer_finish(struct writer *w);
/* Free the writer after a short wait; unwritten output is lost. NULL is allowed. */
void writer_free(struct writer *w);

#endif
