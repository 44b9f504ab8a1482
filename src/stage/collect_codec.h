/* Encoding of the frames that carry the files of a node to DIR (--collect). Pure.
 *
 * A sender offers one file after the other; the receiver answers each offer, takes the pieces of
 * the files that it wants, and confirms each file when it is complete:
 *
 *   sender    HELLO                 OFFER         PIECE PIECE … COMMIT            BYE
 *   receiver         ANSWER(WANT)        ANSWER         TAKEN …        ANSWER(HAVE)   ANSWER(HAVE)
 *
 *   frame = u8 type | u8 verdict | u32 number | u32 mode | i64 mtime | u32 nanoseconds | u64 size
 *           | text or data up to the end of the frame
 *
 * Numbers are little-endian. `number` counts the files of a sender. Answers repeat it, since an
 * answer may arrive when the sender has already gone on to the next file. */
#ifndef DD_STAGE_COLLECT_CODEC_H
#define DD_STAGE_COLLECT_CODEC_H

#include "stage/stage_codec.h"

enum collect_type {
    COLLECT_HELLO = 1, /* text: directory of the node */
    COLLECT_OFFER,     /* number, rule (in verdict), mode, mtime, size; text: path */
    COLLECT_PIECE,     /* number; size: bytes of the decompressed data; data */
    COLLECT_COMMIT,    /* number of a file of which the sender has sent all bytes */
    COLLECT_DROP,      /* number of a file of which the sender could not read the rest */
    COLLECT_BYE,       /* the sender has no more files; number: how many it has offered; size: set
                          of the rules that match nothing on its node, a bit for each */
    COLLECT_ANSWER,    /* number, verdict; text: reason */
    COLLECT_TAKEN,     /* number; size: count of pieces written */
    COLLECT_TYPES,
};

enum collect_verdict {
    COLLECT_WANT,    /* send the file */
    COLLECT_HAVE,    /* the file in DIR is complete */
    COLLECT_REFUSED, /* text: why */
    COLLECT_BUSY,    /* to HELLO: connect again later */
    COLLECT_VERDICTS,
};

enum {
    COLLECT_HELLO_NUMBER = 0, /* number of HELLO; files are numbered from 1 */
    COLLECT_WINDOW = 8,       /* pieces in flight */
    COLLECT_PIECE_MAX = 512 << 10,
    COLLECT_RULES = 64,            /* limit for the uses of --collect: the bits of a uint64_t */
    COLLECT_CACHE = COLLECT_RULES, /* in place of a rule: a file of --compile-cache */
    COLLECT_REASON_MAX = 400,
};

struct collect_frame {
    enum collect_type type;
    unsigned verdict; /* enum collect_verdict, or the number of the rule in OFFER */
    uint32_t number, mode;
    int64_t mtime;
    uint32_t nsec;
    uint64_t size;
    const unsigned char *data; /* borrowed; PIECE only */
    size_t len;
    char text[STAGE_PATH_MAX + 1];
};

/* True for one component of a path without control characters. */
bool collect_folder_ok(const char *name);
int collect_frame_encode(struct dd_buf *out, const struct collect_frame *f);
int collect_frame_decode(struct collect_frame *ret, const void *p, size_t n); /* -EPROTO */

#endif
