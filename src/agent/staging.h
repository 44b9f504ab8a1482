/* --stage: the workers of a round begin with copies of directories on this node. They are started
 * at once, as ddrun-stage, which waits for the copies and then executes the program. The copies
 * stay until the end of the job. */
#ifndef DD_AGENT_STAGING_H
#define DD_AGENT_STAGING_H

#include "agent/features.h"
#include "base/scratch.h"
#include "base/strv.h"

struct staging_cfg {
    const struct dd_strv *paths;          /* absolute; NULL or empty: no --stage */
    const char *plan;                     /* for --dry-run; NULL: no --stage */
    const char *helper;                   /* path of ddrun-stage */
    const struct dd_scratch *dir, *spare; /* for the copies; spare: if there is not enough space in
                                             dir; its path may be NULL */
    bool keep;                            /* use and leave kept copies */
    bool mount;                           /* try to mount the copies at the original paths */
};

extern const struct round_feature staging_feature;

#endif
