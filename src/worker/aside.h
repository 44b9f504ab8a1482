/* Reads a file in a child process with a time limit, since the file server may hang. */
#ifndef DD_WORKER_ASIDE_H
#define DD_WORKER_ASIDE_H

#include "base/buf.h"

/* Append the last `most` bytes of a regular file to out, or nothing if there is no such file or it
 * cannot be opened. Return 0; -ETIMEDOUT: the file system does not respond; or another -errno. */
int aside_read_end(const char *path, size_t most, struct dd_buf *out);

#endif
