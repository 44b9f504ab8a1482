/* Runs commands of a scheduler, and follows the log of a job while a command waits for the end of
 * the job. */
#ifndef DD_CMD_DDCTL_SUBMIT_RUN_H
#define DD_CMD_DDCTL_SUBMIT_RUN_H

#include "base/buf.h"
#include "base/log.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* Run a command with this stdin (-1: /dev/null) and append its stdout to out; the command inherits
 * stderr. Return the exit status, 128 + signal, or -errno. */
int submit_capture(const char *const *argv, int in, struct dd_buf *out);

/* Block SIGINT, SIGTERM and SIGHUP, but not in commands that are started later. *before becomes the
 * previous signal mask. */
void submit_hold_signals(sigset_t *before);

struct submit_process {
    pid_t pid;
    int out; /* descriptor that reads the stdout of the process */
};

/* Start a command that is killed with this process, in a session of its own: Ctrl-C does not reach
 * it. terminal: its stdout is a terminal, not a pipe. 0 or -errno. */
int submit_start(struct submit_process *ret, const char *const *argv, int in, bool terminal);
/* Read the first line of the process's stdout, without the newline. 0, or -errno: -ENODATA if it is
 * empty. */
int submit_read_line(const struct submit_process *p, struct dd_buf *out);
/* Wait for the process. Return its exit status, or 128 + signal. */
int submit_wait(struct submit_process *p);

enum { SUBMIT_LEFT = -1 };

/* Copy the file `log` to stdout while it grows, until the process has ended. Return its exit
 * status, or SUBMIT_LEFT after SIGINT, SIGTERM, SIGHUP, or when the reader of stdout has closed it:
 * the process has then been killed. */
int submit_follow(struct submit_process *p, const char *log);

#endif
