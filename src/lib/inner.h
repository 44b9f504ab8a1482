/* Shared by the files of this room only. */
#ifndef DD_LIB_INNER_H
#define DD_LIB_INNER_H

#include "ddrun/ddrun.h"
#include "lib/alone.h"
#include "lib/conn.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

enum {
    ANSWER_MS = 10000, /* for an answer that the store need not wait for, when the caller says 0 */
    PREFIX_MAX = 64,
};

struct ddrun {
    pid_t pid; /* who may use it: not a child that was forked */
    int rank, size, local_rank, local_size, node_rank, nodes, round, restarts;
    char prefix[PREFIX_MAX]; /* of all our keys: "ddrun/ROUND/" */
    char *heartbeat;         /* a file, NULL: nobody asks */
    int heartbeat_fd;        /* -1: none; where that file is out of sight */
    struct alone *alone;     /* instead of a store; NULL: there is one */
    struct conn_addr addr;
    pthread_mutex_t lock; /* of what follows */
    bool over;            /* the round is */
    bool reached;         /* there was a store */
    struct conn *idle;
    struct ddrun_group *world, *groups;
    int next_event;
};

/* handle.c */
int lib_fail(int rc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* notes "PLACE: why" */
int lib_fail_as(int rc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* the whole sentence */
int lib_check(
    const struct ddrun *d); /* whether this process may use it, and the round still runs */
/* Takes a connection that is idle, or makes one. */
int lib_take(struct ddrun *d, struct conn **ret, uint64_t deadline);
/* Gives it back: after a good exchange for the next one, after a bad one to be closed. Returns rc.
 */
int lib_give(struct ddrun *d, struct conn *c, int rc);
/* One exchange on a connection of its own. A wait that times out is taken back. */
int lib_call(struct ddrun *d, struct wire *w, uint64_t deadline);
uint64_t lib_answer_in(int timeout_ms); /* deadline for what the store answers at once */

/* group.c */
int group_world(struct ddrun *d);
void groups_free(struct ddrun *d);

#endif
