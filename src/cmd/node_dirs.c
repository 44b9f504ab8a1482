#include "cmd/node_dirs.h"

void node_dirs_init(struct node_dirs *d)
{
    for (int i = 0; i < NODE_DIRS; i++)
        d->of[i] = DD_SCRATCH_NONE;
}

void node_dirs_own(const struct node_dirs *d)
{
    for (int i = 0; i < NODE_DIRS; i++)
        dd_scratch_own(&d->of[i]);
}

void node_dirs_remove(const struct node_dirs *d)
{
    for (int i = 0; i < NODE_DIRS; i++)
        (void)dd_scratch_remove(&d->of[i]);
}

void node_dirs_sweep(const struct node_dirs *d)
{
    for (int i = 0; i < NODE_DIRS; i++)
        dd_scratch_sweep(&d->of[i]);
}

void node_dirs_done(struct node_dirs *d)
{
    for (int i = 0; i < NODE_DIRS; i++)
        dd_scratch_done(&d->of[i]);
}
