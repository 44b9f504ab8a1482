/* Makes the chunks of an archive, which ddrun-archive reads. */
#ifndef DD_STAGE_STAGE_ARCHIVE_H
#define DD_STAGE_STAGE_ARCHIVE_H

#include "base/err.h"
#include "stage/stage_codec.h"
#include "stage/stage_source.h"

/* ddrun-archive writes chunks, with a head of u32 length | u8 phase. Length 0: the end; length
 * UINT32_MAX: an error message follows. */
enum { STAGE_ARCHIVE_HEAD = 5 };

/* Take a chunk; takes the bytes of raw, even on failure. Return < 0 to stop reading; the callee has
 * recorded the reason. */
typedef int stage_archive_emit(void *arg, enum stage_phase phase, struct dd_buf *raw);

/* Read the archive once, as source `number`. Waits for ddrun-archive. */
int stage_archive_read(const struct stage_source *source, int number, stage_archive_emit *emit,
                       void *arg, struct dd_err *err);

#endif
