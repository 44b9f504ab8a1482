/* Encoding of a staged directory. Pure.
 *
 * A directory travels as chunks of at most STAGE_RAW_MAX bytes, each compressed by itself, so that
 * several threads can unpack them. A chunk is a sequence of entries:
 *
 *   entry = u8 kind | u32 mode | i64 mtime | u32 nanoseconds | u64 offset | u32 length of the path
 *           | u32 length of the target | u32 length of the data | path | target | data
 *
 * Numbers are little-endian. Paths are relative to the directory of the copy and begin with the
 * number of the source: "0/lib/python3.11/os.py". Chunks belong to phases, sent in order: all
 * chunks of a phase are unpacked before any of the next phase. So no file is created below a
 * symbolic link, and the times of a directory are set last. Unpacking a file makes its missing
 * parent directories, since an archive's directories are sent after its files. */
#ifndef DD_STAGE_STAGE_CODEC_H
#define DD_STAGE_STAGE_CODEC_H

#include "base/buf.h"
#include "stage/stage_tally.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    STAGE_PATH_MAX = 4095,
    STAGE_NAME_MAX = 255,
    STAGE_DEPTH_MAX = 48,        /* components of a path; removal keeps a descriptor for each */
    STAGE_RAW_MAX = 768 << 10,   /* bytes of a chunk; compressed it fits into one frame */
    STAGE_WHOLE_MAX = 256 << 10, /* longer files travel in pieces */
    STAGE_WINDOW = 24,           /* chunks in flight between two nodes */
    STAGE_DIGEST = 32,           /* SHA-256 */
    STAGE_CHUNKS_MAX = 16 << 20, /* for 12 TiB */
};

/* Values of `seq` in an ACK that name no chunk. END: the child has received END. After a HEAD with
 * a digest, HAVE: all nodes of its subtree have a kept copy; NEED: at least one needs the chunks.
 * HELLO: the first ACK, with the node rank of the child. */
#define STAGE_ACK_END UINT32_C(0x7fffffff)
#define STAGE_ACK_HAVE UINT32_C(0x7ffffffe)
#define STAGE_ACK_NEED UINT32_C(0x7ffffffd)
#define STAGE_ACK_HELLO UINT32_C(0x80000000)

enum stage_phase { STAGE_DIRECTORIES, STAGE_FILES, STAGE_LINKS, STAGE_TIMES, STAGE_PHASES };

enum stage_kind {
    STAGE_DIR = 1,  /* mode */
    STAGE_FILE,     /* a whole file: mode, mtime, data */
    STAGE_PIECE,    /* a part of a file: offset, data */
    STAGE_SYMLINK,  /* target */
    STAGE_HARDLINK, /* target: the path of another file */
    STAGE_META,     /* mode and mtime of a directory, or of a file sent in pieces */
    STAGE_KINDS,
};

struct stage_entry {
    enum stage_kind kind;
    uint32_t mode; /* permission bits only: 0 to 0777 */
    int64_t mtime;
    uint32_t nsec;
    uint64_t offset;
    const unsigned char *data; /* borrowed */
    size_t len;
    char path[STAGE_PATH_MAX + 1], target[STAGE_PATH_MAX + 1];
};

/* True for a relative path without empty components, "." and "..", within the limits above. */
bool stage_path_ok(const char *path);
enum stage_phase stage_phase_of(enum stage_kind kind);
/* Return the bytes of an entry with these lengths. */
size_t stage_entry_size(size_t path, size_t target, size_t data);
int stage_entry_encode(struct dd_buf *out, const struct stage_entry *e);
/* Encode an entry without its data, which the caller puts after it. */
int stage_entry_encode_head(struct dd_buf *out, const struct stage_entry *e);
/* Decode the entry at *at and advance *at. Returns 1, 0 at the end, or -EPROTO. */
int stage_entry_decode(struct stage_entry *ret, const unsigned char *p, size_t n, size_t *at);

/* Replace control characters, which file names may contain, by '?'. */
void stage_printable(char *text);

/* Frames of a link (FRAME_STAGE). */
enum stage_frame_type {
    STAGE_HEAD = 1, /* bytes, entries: what the copy needs; digest: of the listing, 0 without
                       --stage-keep */
    STAGE_CHUNK,    /* seq, phase, raw, data */
    STAGE_END,      /* chunks, digest: SHA-256 of the digests of all chunks, in their order */
    STAGE_ACK,      /* seq: the child and its subtree no longer need the chunk; or STAGE_ACK_END,
                       STAGE_ACK_HAVE, STAGE_ACK_NEED, or STAGE_ACK_HELLO + node rank */
    STAGE_TALLY,    /* tally: of the child and its subtree; at most once a second, and at the end */
    STAGE_FRAMES,
};

struct stage_frame {
    enum stage_frame_type type;
    uint64_t bytes, entries;
    uint32_t seq;
    enum stage_phase phase;
    uint32_t raw; /* bytes of the chunk when it is decompressed */
    const unsigned char *data;
    size_t len;
    uint32_t chunks;
    struct stage_tally tally;
    unsigned char digest[STAGE_DIGEST];
};

int stage_frame_encode(struct dd_buf *out, const struct stage_frame *f);
int stage_frame_decode(struct stage_frame *ret, const void *p, size_t n); /* -EPROTO */

#endif
