/* The private directories of one node of a job. Each may be missing. */
#ifndef DD_CMD_NODE_DIRS_H
#define DD_CMD_NODE_DIRS_H

#include "base/scratch.h"

enum node_dir {
    NODE_DIR_TMP,         /* in the temporary directory: PMIx, flight recorder, CUDA core files */
    NODE_DIR_SHM,         /* in /dev/shm: Open MPI */
    NODE_DIR_STAGE,       /* copies of --stage */
    NODE_DIR_STAGE_SPARE, /* the same in /dev/shm, for copies that do not fit there */
    NODE_DIR_CACHE,       /* --compile-cache */
    NODE_DIRS
};

struct node_dirs {
    struct dd_scratch of[NODE_DIRS];
};

void node_dirs_init(struct node_dirs *d);
/* Record the calling process as the owner of each. */
void node_dirs_own(const struct node_dirs *d);
/* Remove each directory with its contents; what is in use stays. */
void node_dirs_remove(const struct node_dirs *d);
/* Remove the directories next to these that dead jobs of this user have left. */
void node_dirs_sweep(const struct node_dirs *d);
/* Free the paths and close the descriptors; remove no file. */
void node_dirs_done(struct node_dirs *d);

#endif
