/* --warm: an archive with one Python module, which an interpreter can import from a descriptor.
 * Pure. */
#ifndef DD_WORKER_WARM_ARCHIVE_H
#define DD_WORKER_WARM_ARCHIVE_H

#include "base/buf.h"

/* Append a zip archive with one file, not compressed. Src: PKWARE's APPNOTE 6.3, sections 4.3.7,
 * 4.3.12 and 4.3.16. Return 0, -ENOMEM or -EMSGSIZE. */
int warm_archive_make(struct dd_buf *out, const char *name, const void *content, size_t len);

#endif
