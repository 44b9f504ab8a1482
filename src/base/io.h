/* File descriptors, whole files and clocks. */
#ifndef DD_BASE_IO_H
#define DD_BASE_IO_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>

int dd_fd_nonblock(int fd);                         /* 0 or -errno */
int dd_fd_keep(int fd);                             /* clears close-on-exec; 0 or -errno */
int dd_write_full(int fd, const void *p, size_t n); /* blocking; 0 or -errno */
int dd_read_full(int fd, void *p, size_t n);        /* 0 or -errno; -ENODATA: fewer than n bytes */

/* Replace a file atomically: readers see either the old or the new content. The message does not
 * name the file; the caller does. */
int dd_write_file(const char *path, const void *p, size_t n, struct dd_err *err);

/* Open a file or directory that the user has named. Where others can leave links, pipes and files
 * beside it, as in /tmp, refuse those with -EACCES, even if the kernel is not set to do so. Never
 * waits for the other end of a pipe. Return a descriptor or -errno. Src: proc_sys_fs(5),
 * protected_symlinks, protected_regular, protected_fifos, protected_hardlinks. */
int dd_open_unplanted(const char *path, int flags, mode_t mode);

/* True if the path of len bytes is the directory or lies in it. Compares the texts alone; dir does
 * not end with '/'. */
bool dd_path_lies_in(const char *path, size_t len, const char *dir);

/* Append the whole file to out. Refuses a named pipe; reads /dev/stdin and <(COMMAND).
 * -EMSGSIZE with a message if it is longer than out->max. */
int dd_read_file(const char *path, struct dd_buf *out, struct dd_err *err);

uint64_t dd_now_ns(void);      /* CLOCK_MONOTONIC */
uint64_t dd_now_real_ns(void); /* CLOCK_REALTIME */

#define DD_NS_PER_MS UINT64_C(1000000)
#define DD_NS_PER_S UINT64_C(1000000000)

/* Convert nanoseconds, for timers. */
static inline struct timeval dd_timeval(uint64_t ns)
{
    return (struct timeval){.tv_sec = (time_t)(ns / DD_NS_PER_S),
                            .tv_usec = (suseconds_t)(ns % DD_NS_PER_S / 1000)};
}

#endif
