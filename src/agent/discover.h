/* The job's host through etcd: who is it, and are we? Only where --rdzv-endpoint names an etcd;
 * else every function here does nothing. Private to this room. */
#ifndef DD_AGENT_DISCOVER_H
#define DD_AGENT_DISCOVER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct discover;

/* Finds the host, or becomes it; a->cfg->etcd is there. */
int discover_begin(struct agent *a, struct dd_err *err);
/* The daemon is gone before it has begun a round: true, it is looked for once more. */
bool discover_again(struct agent *a, const char *why);
/* Before the first round. True: the daemon will be told (LOOKED) when it is known that no other
 * host's job has begun. */
bool discover_check(struct agent *a);
const char *
discover_status(const struct agent *a); /* how it stands, lent; NULL: nothing is sought */

int discover_take_listener(
    struct agent *a, uint16_t *ret_port); /* the host's socket, given; -1: there is none yet */
void discover_hosting(struct agent *a, uint16_t port); /* a daemon of ours listens there now */
void discover_changed(struct agent *a);                /* a round may have begun */
void discover_begun(struct agent *a);                  /* one has, without this node */
void discover_following(struct agent *a);              /* another node's daemon has our link */
void discover_over(struct agent *a); /* the job is: nobody is to find us any more */
void discover_free(struct agent *a); /* waits for the last word to etcd, 1 s at most */

#endif
