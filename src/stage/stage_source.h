/* What --stage copies: a directory, an archive, or a squashfs image. An archive is unpacked, an
 * image is mounted; workers find the contents of both in a directory with a name of its own. Pure.
 */
#ifndef DD_STAGE_STAGE_SOURCE_H
#define DD_STAGE_STAGE_SOURCE_H

#include "base/strv.h"

#include <stdbool.h>

struct stage_source {
    char *path; /* what is read */
    char *name; /* name of the directory that workers see; equal to path if path is a directory */
    bool archive, image;
};

/* All sources; paths and names end with NULL. */
struct stage_sources {
    struct stage_source *v;
    int n;
    char **paths, **names; /* borrowed from v */
};

/* Parse "DIR", "FILE" or "FILE:NAME". The suffix of FILE marks an archive or image, and without
 * NAME the directory has the name without the suffix. 0 or -ENOMEM. */
int stage_source_parse(struct stage_source *ret, const char *text);
void stage_source_done(struct stage_source *s);
int stage_sources_parse(struct stage_sources *ret, char *const *texts); /* 0 or -ENOMEM */
/* True for the name of an image that cannot be mounted (".sif" …). */
bool stage_source_is_foreign(const char *path);
/* True if one of the texts names an image. */
bool stage_sources_have_image(char *const *texts);

static inline void dd_auto_stage_source(struct stage_source *s)
{
    stage_source_done(s);
}

#endif
