/* Private to the files of libddrun. */
#ifndef DD_LIB_LIB_INNER_H
#define DD_LIB_LIB_INNER_H

#include "ddrun/ddrun.h"
#include "lib/local_store.h"
#include "lib/conn.h"
#include "lib/step_file.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

enum {
    ANSWER_MS = 10000, /* time limit for an immediate reply if the caller passes 0 */
    PREFIX_MAX = 64,
};

struct ddrun {
    pid_t pid; /* process that created the handle; forked children must not use it */
    int rank, size, local_rank, local_size, node_rank, nodes, round, restarts;
    char prefix[PREFIX_MAX]; /* prefix of all keys: "ddrun/ROUND/" */
    char *heartbeat;         /* path of the heartbeat file; NULL: none requested */
    int heartbeat_fd; /* inherited descriptor of the same file, for containers where the path is
                       * not visible; -1: none */
    struct step_page *steps; /* shared with the agent; NULL: steps are not measured */
    struct step_clock clock;
    struct local_store *local; /* in-memory store without ddrun; NULL: use the round's store */
    struct conn_addr addr;
    pthread_mutex_t lock; /* protects the members below */
    bool over;            /* the round is over */
    bool reached;         /* a connection to the store has succeeded before */
    struct conn *idle;
    struct ddrun_group *world, *groups;
    int next_event;
};

/* handle.c */
int lib_fail(int rc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* sets the error message to "PLACE: why" */
int lib_fail_as(int rc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* sets the whole error message */
int lib_check(const struct ddrun
                  *d); /* checks that this process may use d and that the round is still running */
/* Take an idle connection or open a new one. */
int lib_take(struct ddrun *d, struct conn **ret, uint64_t deadline);
/* Return a connection: after a complete exchange for reuse, else to be closed. Returns rc. */
int lib_give(struct ddrun *d, struct conn *c, int rc);
/* Run one exchange on a connection of its own. Cancels a wait that times out. */
int lib_call(struct ddrun *d, struct wire *w, uint64_t deadline);
uint64_t lib_answer_in(int timeout_ms); /* deadline for an immediate reply */

/* collectives.c */
int group_world(struct ddrun *d);
void groups_free(struct ddrun *d);

#endif
