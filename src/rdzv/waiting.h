/* What a job waits for, as text for the user. Pure. */
#ifndef DD_RDZV_WAITING_H
#define DD_RDZV_WAITING_H

#include <stdbool.h>
#include <stddef.h>

enum waiting_for {
    WAITING_FOR_DAEMON, /* no daemon found yet */
    WAITING_FOR_NODES,  /* nodes have not joined yet */
    WAITING_FOR_STOP,   /* nodes have not stopped their workers yet */
    WAITING_KINDS,
};

enum { WAITING_NAMES = 256 };

struct rdzv_wait {
    enum waiting_for what;
    int ready, wanted;         /* numbers of nodes: joined or stopped; to wait for in all */
    int workers;               /* number of workers of the nodes that have joined */
    int attempt, attempts;     /* number of the attempt, from 1; attempts allowed, 1: no restart */
    char names[WAITING_NAMES]; /* names of at most three awaited nodes; "": unknown */
    int waited_s, limit_s;
    int starts_s; /* the round starts without the missing nodes after this time; < 0: it does not */
};

/* Return the word for a kind in the reply to an agent's request "waiting"; "" for
 * WAITING_FOR_DAEMON, to which waiting_kind() maps any other word, too. */
const char *waiting_kind_name(enum waiting_for what);
enum waiting_for waiting_kind(const char *name);

/* Append a name to a list, which only shows the first three names. n: number of names before. */
void waiting_add_name(char list[WAITING_NAMES], int n, const char *name);
/* End a list to which n names were appended: "node3, node4, node5 and 2 more". */
void waiting_end_names(char list[WAITING_NAMES], int n);

/* Write "waiting for 2 of 4 nodes: NAMES; gives up in 4 min 30 s", without the names if NULL or
 * "". */
void waiting_notice(char *out, size_t size, const struct rdzv_wait *w, const char *names);

/* Write one line of less than `columns` characters, without a newline; the least important parts
 * are left out first. */
void waiting_line(char *out, size_t size, size_t columns, const struct rdzv_wait *w);

#endif
