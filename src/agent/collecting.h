/* --collect: copy files of the nodes to a directory of the first node. When the last worker of a
 * node has exited, and at the signal before the end of the allocation, a ddrun-stage process of the
 * node sends its files to a ddrun-stage process of the first node, which writes them. The round
 * ends on the node when each file was sent or is reported as missing. */
#ifndef DD_AGENT_COLLECTING_H
#define DD_AGENT_COLLECTING_H

#include "agent/features.h"
#include "agent/staging.h"
#include "base/strv.h"

struct collecting_cfg {
    const struct dd_strv *patterns;  /* NULL or empty: no --collect */
    const struct dd_strv *dirs;      /* destinations, absolute; one for each pattern */
    const char *helper;              /* path of ddrun-stage */
    const char *directory;           /* base of relative patterns, absolute */
    const struct staging_cfg *cache; /* --compile-cache: new files of the cache go to the first of
                                        the paths; NULL: none */
};

extern const struct round_feature collecting_feature;

/* Return the files missing from the last collection, one per line, for the report; "": none. */
const char *collecting_missing(const struct round *r);

#endif
