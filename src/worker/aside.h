/* Reading a file that may lie on a file server that hangs: in a child, and not for ever. */
#ifndef DD_WORKER_ASIDE_H
#define DD_WORKER_ASIDE_H

#include "base/buf.h"

/* Appends the last bytes of a regular file to out, at most `most` of them; nothing where the file
 * is not there. 0; -ETIMEDOUT: the file system does not answer; or another -errno. */
int aside_read_end(const char *path, size_t most, struct dd_buf *out);

#endif
