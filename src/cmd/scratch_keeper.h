/* A process that removes the private directories of a node if guardian and agent are both killed.
 * It runs only if there are such directories. */
#ifndef DD_CMD_SCRATCH_KEEPER_H
#define DD_CMD_SCRATCH_KEEPER_H

#include "cmd/node_dirs.h"

#include <sys/types.h>

struct scratch_keeper {
    pid_t pid; /* 0: none */
    int fd;    /* write end of a pipe; EOF: guardian and agent have ended */
};

/* Start the keeper if a directory exists. Call this before guardian_run(), which does not wait for
 * children that exist already. Failures are ignored: the next job of the user removes the
 * directories. */
void scratch_keeper_start(struct scratch_keeper *k, const struct node_dirs *dirs);
/* End the keeper after the directories have been removed. */
void scratch_keeper_end(struct scratch_keeper *k);

#endif
