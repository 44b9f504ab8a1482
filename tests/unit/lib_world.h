/* A store server on a thread of its own, and handles of libddrun that are connected to it. */
#ifndef LIB_WORLD_H
#define LIB_WORLD_H

#include "ddrun/ddrun.h"
#include "store/store_server.h"

#include <pthread.h>

enum { LIMIT_MS = 60000 }; /* only ends a hang */

struct world;

/* n handles, ranks 0 to n-1; d is borrowed until world_free(). */
struct world *world_new(int n, struct ddrun **d);
void world_free(struct world *w); /* free the handles first */

/* Run on the server's thread; return when it is done. */
void world_stats(struct world *w, struct store_stats *ret);
void world_set(struct world *w, const char *key, const char *text);
void world_end_waits(struct world *w);
void world_reset(struct world *w);
void world_hang_up(struct world *w); /* closes the listener; connections stay */

/* Set the variables that ddrun sets for a worker; port 0: unset them. */
void world_env(int rank, int size, int port);
int world_port(const struct world *w);

/* Run fn(handle, arg + i * size) on a thread for each handle; return when all have returned. */
void world_run(struct ddrun **d, int n, void (*fn)(struct ddrun *d, void *arg), void *arg,
               size_t size);

#endif
