/* --collect: files of the nodes come back to a directory of the first node. When the last worker of
 * a node has exited, and at the signal before the end of the allocation, a ddrun-stage of the node
 * sends its files to that of the first node, which writes them. The round ends on the node when all
 * of them have been treated. */
#ifndef DD_AGENT_COLLECTING_H
#define DD_AGENT_COLLECTING_H

#include "agent/features.h"
#include "agent/staging.h"
#include "base/strv.h"

struct collecting_cfg {
    const struct dd_strv *patterns; /* NULL or empty: no --collect */
    const struct dd_strv *dirs;     /* absolute; one for each pattern */
    const char *helper;             /* path of ddrun-stage */
    const char *directory;          /* before relative patterns, absolute */
    const struct staging_cfg
        *cache; /* --compile-cache: its new files go to the first of its paths */
};

extern const struct round_feature collecting_feature;

/* What has not come in the last collection, one a line, for the job's report; "". */
const char *collecting_missing(const struct round *r);

#endif
