/* What --stage copies: a directory, or an archive. An archive is unpacked; workers find its
 * contents in a directory with a name of its own. Pure. */
#ifndef DD_STAGE_STAGE_SOURCE_H
#define DD_STAGE_STAGE_SOURCE_H

#include "base/strv.h"

#include <stdbool.h>

struct stage_source {
    char *path; /* what is read */
    char *name; /* of the directory that workers see; equal to path unless it is an archive */
    bool archive;
};

/* All that are copied; both lists end with NULL. */
struct stage_sources {
    struct stage_source *v;
    int n;
    char **paths, **names; /* borrowed from v */
};

/* "DIR", "ARCHIVE" or "ARCHIVE:NAME"; an archive is known by the end of its name, and without NAME
 * the directory has its name without that end. 0 or -ENOMEM. */
int stage_source_parse(struct stage_source *ret, const char *text);
void stage_source_done(struct stage_source *s);
int stage_sources_parse(struct stage_sources *ret, char *const *texts); /* 0 or -ENOMEM */
/* The end of the name of an image that cannot be copied (".squashfs" …), or NULL. */
const char *stage_source_image(const char *path);

static inline void dd_auto_stage_source(struct stage_source *s)
{
    stage_source_done(s);
}

#endif
