/* Runs of torchrun that use the store as rendezvous, and removal of their keys.
 *
 * An agent's first request puts a marker under "/torch.rendezvous.ID" if that key does not exist.
 * In a store that the agent does not host, the run has only this key and keys below
 * "/torch.rendezvous.ID.ROUND/". A finished run leaves the value "closed", with which torchrun
 * refuses the same ID forever. So the keys of a run are deleted with the last connection that began
 * with such a request: an agent connects only once, so after the last one no process can need the
 * keys. Other keys are kept. Src: torch 2.13.0, its c10d rendezvous. */
#ifndef DD_STORE_RUNS_H
#define DD_STORE_RUNS_H

#include "store/engine.h"

struct store_run;

/* Initially all zero. */
struct store_runs {
    LIST_HEAD(, store_run) list;
};

/* True if this COMPARE_SET is the first request of an agent. */
bool store_runs_begins(struct store_bytes key, struct store_bytes expected,
                       struct store_bytes desired);
/* Add a connection to the run of this key. *ret is valid until store_runs_leave(). 0, -ENOSPC or
 * -ENOMEM. */
int store_runs_join(struct store_runs *runs, struct store_engine *e, struct store_bytes key,
                    struct store_run **ret);
/* Remove a connection; with the last one, delete the keys of the run. NULL does nothing. */
void store_runs_leave(struct store_runs *runs, struct store_engine *e, struct store_run *run);

#endif
