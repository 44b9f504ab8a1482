/* Limits the memory of the store to half of what this process may use: the workers need the rest.
 * In a job, the memory is looked up once the workers of the first round have started: the look-up
 * takes as long as the start of a worker, and would delay the first one. */
#ifndef DD_DAEMON_STORE_MEMORY_H
#define DD_DAEMON_STORE_MEMORY_H

#include "daemon/journal.h"

#include <stddef.h>

struct store_server;

struct store_memory {
    struct journal_subscriber subscriber;
    struct store_server *store;
    bool limited;
};

/* Subscribe m to the journal; m and store must live until the journal is no longer used. */
void store_memory_follow(struct store_memory *m, struct journal *j, struct store_server *store);

/* Return the lower of `most` and half of the memory of this machine and its cgroups, in bytes. */
size_t store_memory_share(size_t most);

#endif
