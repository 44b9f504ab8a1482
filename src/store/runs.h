/* Runs of torchrun that use the store to find each other, and what of theirs is forgotten when.
 *
 * An agent's first request puts a mark under "/torch.rendezvous.ID", if nothing is there yet; all
 * that its run leaves in a store that is not the agent's own stands there and below
 * "/torch.rendezvous.ID.ROUND/". A run that has ended leaves the word "closed", with which torchrun
 * refuses the same ID for ever. So the keys of a run live as long as one of the connections that
 * began so: an agent connects once in its life, and when the last one has gone there is nobody who
 * could remember what was there. Other keys stay. Src: torch 2.13.0, its c10d rendezvous.
 */
#ifndef DD_STORE_RUNS_H
#define DD_STORE_RUNS_H

#include "store/engine.h"

struct store_run;

/* All zero at first. */
struct store_runs {
    LIST_HEAD(, store_run) list;
};

/* Whether this COMPARE_SET is how an agent begins. */
bool store_runs_begins(struct store_bytes key, struct store_bytes expected,
                       struct store_bytes desired);
/* One more connection of the run of that key. *ret is held until store_runs_leave(). 0, -ENOSPC,
 * -ENOMEM. */
int store_runs_join(struct store_runs *runs, struct store_engine *e, struct store_bytes key,
                    struct store_run **ret);
/* The last one takes the keys of the run with it. NULL is fine. */
void store_runs_leave(struct store_runs *runs, struct store_engine *e, struct store_run *run);

#endif
