/* --compile-cache: selects the files of a node that are new, or were used, and their names in the
 * shared directory. */
#ifndef DD_STAGE_COMPILE_SEND_H
#define DD_STAGE_COMPILE_SEND_H

#include "stage/collect_list.h"

#include <stdint.h>

/* Bits of `how`. */
enum compile_send_how {
    COMPILE_SEND_LATE = 1,   /* omit files changed later than 5 s before the first failure, or, if
                                there was none, before now: their writers may have been killed, or
                                may still write */
    COMPILE_SEND_REMOVE = 2, /* with LATE: remove the omitted files, except those of snapshots */
    COMPILE_SEND_FIRST = 4,  /* the first node: also send snapshots and used files */
};

/* Append the files of the private directory `dir` to l, in the order in which they must be sent.
 * Nothing is appended if `dir` has no complete copy. failed_at: time of the first failure, in
 * seconds of the wall clock, 0 if there was none. Return 0, -ENOMEM, or -E2BIG: `dir` has too many
 * files. */
int compile_send_list(struct collect_list *l, const char *dir, const char *kind, int how,
                      int64_t failed_at);

#endif
