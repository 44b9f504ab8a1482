/* Names of error files among temporary files, for workers without a log directory. Each worker of
 * each round has a new one that no other user can compute, so nothing exists until a worker writes
 * it and nobody can be there first. The guardian and the agent both compute the names of the round
 * that runs: each removes the files if the other is killed. */
#ifndef DD_AGENT_ERROR_NAMES_H
#define DD_AGENT_ERROR_NAMES_H

#include "base/err.h"

enum { ERROR_NAMES_SECRET = 16 };

struct error_names {
    char *dir;                                /* NULL: there is none */
    unsigned char secret[ERROR_NAMES_SECRET]; /* only the user's processes know it */
    int *round;                               /* memory that agent and guardian share */
    int workers;                              /* of this node */
};

/* Before the agent is forked. dir is copied; other users must not be able to rename what is in it.
 */
int error_names_new(struct error_names *n, const char *dir, int workers, struct dd_err *err);
void error_names_next(
    const struct error_names *n); /* a new round: removes the files of the last one */
char *error_names_path(const struct error_names *n,
                       int i); /* of worker i; owned by the caller; NULL: out of memory */
void error_names_remove(const struct error_names *n); /* the files of the round that runs */
void error_names_done(struct error_names *n);

#endif
