/* Names of temporary error files, for workers without a log directory. Each worker of each round
 * gets a new name that other users cannot compute, so another user cannot create the file first.
 * Guardian and agent both compute the names of the present round, so that either can remove the
 * files if the other is killed. */
#ifndef DD_AGENT_ERROR_NAMES_H
#define DD_AGENT_ERROR_NAMES_H

#include "base/err.h"

enum { ERROR_NAMES_SECRET = 16 };

struct error_names {
    char *dir;                                /* NULL: no usable directory */
    unsigned char secret[ERROR_NAMES_SECRET]; /* known to guardian and agent only */
    int *round;  /* number of the present round, in memory that agent and guardian share */
    int workers; /* number of workers of this node */
};

/* Call before the agent is forked. dir is copied; other users must not be able to rename its
 * entries. */
int error_names_new(struct error_names *n, const char *dir, int workers, struct dd_err *err);
void error_names_next(
    const struct error_names *n); /* begin a round, and remove the files of the last one */
char *error_names_path(const struct error_names *n,
                       int i); /* name for worker i, owned by the caller; NULL: out of memory */
void error_names_remove(const struct error_names *n); /* remove the files of the present round */
void error_names_done(struct error_names *n);

#endif
