/* Cutting a stream of bytes into lines, and keeping its last ones. No I/O. */
#ifndef DD_WORKER_LINES_H
#define DD_WORKER_LINES_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { LINES_MAX = 1 << 20, TAIL_LINES = 20, TAIL_BYTES = 16384 };

struct lines {
    size_t scanned; /* bytes at the front that hold no end of a line */
    bool after_cr;  /* the last piece ended in \r: a \n that follows belongs to it */
};

struct line_piece {
    size_t len; /* with its end */
    bool bare;  /* goes without a label: a lone \r, or the \n that follows an earlier \r */
    bool cut;   /* has no end of its own: the last line of the stream, or a piece of LINES_MAX */
};

/* The next piece of p[0..n), which begins where the last piece ended. Ends of lines: \n, \r\n, and
 * \r alone, with which progress bars rewrite a line. True: *ret is set; false: more is needed. */
bool lines_next(struct lines *l, const unsigned char *p, size_t n, bool eof,
                struct line_piece *ret);

/* Length of the lines at the front of p[0..n) that have an end, as of lines_next(). */
size_t lines_whole(const unsigned char *p, size_t n);

/* The end of what was written, at most TAIL_BYTES and TAIL_LINES. */
struct tail {
    struct dd_buf bytes;
    size_t most; /* fewer bytes than TAIL_BYTES; 0: so many */
};

void tail_add(struct tail *t, const unsigned char *p, size_t n); /* out of memory: forgets */
/* Puts the last lines into out; of a line that was rewritten with \r only the last version. */
int tail_format(const struct tail *t, struct dd_buf *out);
void tail_done(struct tail *t);

#endif
