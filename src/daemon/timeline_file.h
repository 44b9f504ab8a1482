/* The file of --timeline. A child process opens and writes it, since a file server that hangs
 * must not delay the daemon, and the daemon may not open files for writing (daemon/confine.h).
 * The child ends the array when the daemon closes its end or exits, for whatever reason. The child
 * reports an error, also if the file is not complete 5 s later. */
#ifndef DD_DAEMON_TIMELINE_FILE_H
#define DD_DAEMON_TIMELINE_FILE_H

#include "base/err.h"
#include "base/log.h"

#include <stddef.h>

struct event_base;
struct timeline_file;

/* path and log are borrowed until timeline_file_free(). The child creates or truncates the file
 * when the first bytes arrive. */
int timeline_file_new(struct timeline_file **ret, struct event_base *base, const char *path,
                      const struct dd_log *log, struct dd_err *err);
/* Queue n bytes. 0; -ENOBUFS: too much is queued, or -ENOMEM: nothing was added; -EPIPE: the child
 * has ended, because it could not write the file and has reported why. */
int timeline_file_put(struct timeline_file *f, const void *p, size_t n);
/* Pass what is queued to the child, for at most 1 s. NULL does nothing. */
void timeline_file_free(struct timeline_file *f);

#endif
