/* A process that removes the private directories of a node if guardian and agent are both killed.
 * It exists only where such directories do. */
#ifndef DD_CMD_SCRATCH_KEEPER_H
#define DD_CMD_SCRATCH_KEEPER_H

#include "base/scratch.h"

#include <stddef.h>
#include <sys/types.h>

enum { KEEPER_DIRS = 4 };

struct scratch_keeper {
    pid_t pid; /* 0: none */
    int fd;    /* its end tells the keeper that no process of ddrun is left on this node */
};

/* Start it, unless no directory exists. Call it before the guardian starts: the guardian does not
 * wait for children that are older than itself. A failure is no error: the next job of the user
 * removes what is left. */
void scratch_keeper_start(struct scratch_keeper *k,
                          const struct dd_scratch *const dirs[KEEPER_DIRS]);
/* The directories have been removed: end it. */
void scratch_keeper_end(struct scratch_keeper *k);

#endif
