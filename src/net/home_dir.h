/* Files in ~/.ddrun, which the nodes of a job share if they share the home directory. Only this uid
 * can read and write them. The calls block while the file system does not respond. */
#ifndef DD_NET_HOME_DIR_H
#define DD_NET_HOME_DIR_H

#include "base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* A file that is named after a job; it need not exist. */
struct home_file {
    int dirfd; /* owned; -1: closed */
    char dir[PATH_MAX];
    char name[256];
    char shown[PATH_MAX + 260]; /* path of the file, for messages */
};

struct home_file_name {
    char *const *env;   /* HOME */
    const char *job_id; /* any text */
    const char *suffix; /* at most 40 bytes, without a dot before it: "charges" */
};

/* Open the directory ~/.ddrun for the file of this name. create: make the directory if it does not
 * exist. Errors have messages: -ENOKEY: no home directory; -EINVAL: another user owns the directory
 * or can write to it, or the job id is empty; another -errno. */
int home_file_open(struct home_file *ret, const struct home_file_name *name, bool create,
                   struct dd_err *err);
void home_file_close(struct home_file *f);

/* Read the file, which must be a regular file of this uid, readable by no other user, and not a
 * link. Returns its size, less than `size`, or -errno with a message; what: its kind, for messages.
 */
int home_file_read(const struct home_file *f, const char *what, unsigned char *out, size_t size,
                   struct dd_err *err);
/* Write the file, so that no reader finds a part of it. *ret_now: the time of the write by the file
 * system's clock. 0 or -errno with a message. */
int home_file_write(const struct home_file *f, const void *text, size_t n, time_t *ret_now,
                    struct dd_err *err);
int home_file_remove(const struct home_file *f); /* 0 or -errno */

/* Remove stale files of any job, a few per call. now: from the file system's clock. */
void home_file_sweep(const struct home_file *f, time_t now);

#endif
