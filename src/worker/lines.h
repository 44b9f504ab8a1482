/* Splits a stream of bytes into lines, and keeps the last lines. No I/O. */
#ifndef DD_WORKER_LINES_H
#define DD_WORKER_LINES_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { LINES_MAX = 1 << 20, TAIL_LINES = 150, TAIL_BYTES = 16384 };

struct lines {
    size_t scanned; /* number of leading bytes that contain no line end */
    bool after_cr;  /* the last piece ended with \r: a following \n belongs to it */
};

struct line_piece {
    size_t len; /* including the line end */
    bool bare;  /* gets no label: a lone \r, or the \n after an earlier \r */
    bool cut;   /* has no line end: the last line of the stream, or a piece of LINES_MAX */
};

/* Return the next piece of p[0..n), which begins where the last piece ended. Line ends are
 * \n, \r\n, and \r alone, which progress bars write. True: *ret is set; false: more input is
 * needed. */
bool lines_next(struct lines *l, const unsigned char *p, size_t n, bool eof,
                struct line_piece *ret);

/* Return the length of the complete lines at the front of p[0..n), as lines_next() splits them. */
size_t lines_whole(const unsigned char *p, size_t n);

/* The last output of a stream, at most TAIL_BYTES and TAIL_LINES. */
struct tail {
    struct dd_buf bytes;
    size_t most; /* limit in bytes, at most TAIL_BYTES; 0: TAIL_BYTES */
};

void tail_add(struct tail *t, const unsigned char *p,
              size_t n); /* discards the tail if out of memory */
/* Append the last lines to out; of a line that was rewritten with \r, only the last version. */
int tail_format(const struct tail *t, struct dd_buf *out);
void tail_done(struct tail *t);

#endif
