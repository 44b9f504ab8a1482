/* The directories of --compile-cache: the shared directory, from which the first node reads, and
 * the private directory of a node. */
#ifndef DD_STAGE_COMPILE_DIR_H
#define DD_STAGE_COMPILE_DIR_H

#include "base/err.h"
#include "stage/stage_walk.h"

#include <stdint.h>

/* Below the private directory of a node: the cache, and a file that marks the time when its copy
 * was complete; files changed later are new. */
#define COMPILE_DIR_CACHE "0"
#define COMPILE_DIR_MARK "seeded"

struct compile_dir {
    const char *dir;  /* DIR */
    const char *kind; /* name of the directory in DIR for this kind of processor */
    uint64_t most;    /* limit for the bytes of DIR/KIND */
};

/* Open DIR/KIND, or DIR if kind is NULL; create them. Return a descriptor or -errno. -EPERM: a
 * directory belongs to another user, or other users can write to it. */
int compile_dir_open(const struct compile_dir *c, struct dd_err *err);

enum { COMPILE_DIR_SOURCE = 40, COMPILE_DIR_WARNING = 700 };

/* Remove the least recently used entries of DIR/KIND until it has at most `most` bytes, and list
 * the rest. source: set to a path of DIR/KIND that stays valid until the process exits; "" if DIR
 * cannot be used. warning: set to why entries are missing in the list; "": none are. Return 0 or
 * -errno; -E2BIG: there are too many entries. */
int compile_dir_list(struct stage_list *ret, const struct compile_dir *c,
                     char source[COMPILE_DIR_SOURCE], char warning[COMPILE_DIR_WARNING]);
/* Replace the cache that tools have written meanwhile by the complete copy in the directory `made`,
 * if that has entries. Where the file system can exchange directories, tools always find one.
 * 0 or -errno. */
int compile_dir_take(int at, const char *made);
/* Once the copy is complete, make the directories of the tools and the mark. at: the private
 * directory. */
int compile_dir_arrange(int at, struct dd_err *err);

#endif
