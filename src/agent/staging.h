/* --stage: the workers of a round begin with copies of directories on this node. They are started
 * at once, as ddrun-stage, which waits for the copies and then executes the program. The copies
 * stay until the end of the job.
 *
 * --compile-cache: the same for the caches of compilers, which the workers may change. A node that
 * gets no copy continues without one. */
#ifndef DD_AGENT_STAGING_H
#define DD_AGENT_STAGING_H

#include "agent/features.h"
#include "base/scratch.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stdint.h>

struct staging_cfg {
    const struct dd_strv *paths;          /* paths to copy, absolute; NULL or empty: none */
    const char *plan;                     /* text for --dry-run; NULL: nothing to copy */
    const char *helper;                   /* path of ddrun-stage */
    const struct dd_scratch *dir, *spare; /* directories for the copies; spare: used if dir has not
                                             enough space; spare->path may be NULL */
    bool keep;                            /* use copies of earlier jobs, and leave copies for later
                                             jobs (--stage-keep) */
    bool mount;                           /* try to mount the copies at the original paths */
    const char *kind; /* --compile-cache: kind of processor of this node; NULL: --stage */
    uint64_t most;    /* --compile-cache: maximum size of the cache in bytes */
};

extern const struct round_feature staging_feature;
extern const struct round_feature compile_cache_feature;

/* True once the copies of --stage on this node are complete, and the nodes of the round have
 * exchanged which of them need one. */
bool staging_is_settled(const struct round *r);
/* As staging_is_settled(), for the caches of --compile-cache; true also if this node goes on
 * without them. */
bool compile_cache_is_settled(const struct round *r);
/* Set the variables of the compilers to the caches of this node, which may still be incomplete;
 * keep variables that the user has set. Return 0 or -ENOMEM. */
int compile_cache_put_variables(const struct staging_cfg *c, struct dd_strv *env);
/* Return a descriptor from which "ddrun-stage enter" reads where the copies are, as for a worker;
 * -ENOTSUP: the copies cannot be mounted on this node. */
int staging_ticket(const struct round *r, struct dd_err *err);

#endif
