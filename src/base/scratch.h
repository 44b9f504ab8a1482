/* A private directory for temporary files: a random name, mode 0700, and a descriptor through which
 * it is emptied, so that its removal never depends on a path that may have changed. Other users can
 * neither enter the directory nor take its name while it exists. It exists for the whole job, so no
 * name is used twice. */
#ifndef DD_BASE_SCRATCH_H
#define DD_BASE_SCRATCH_H

#include "base/err.h"

struct dd_scratch {
    char *path; /* absolute; NULL: none */
    int fd;     /* of the directory, close-on-exec; -1: none */
};

#define DD_SCRATCH_NONE (struct dd_scratch){.fd = -1}

/* Resolve the symbolic links of a directory that is safe for temporary files. The caller frees
 * *ret. Errors as for dd_scratch_new(). */
int dd_scratch_parent(char **ret, const char *parent, struct dd_err *err);
/* Create a directory below parent, whose symbolic links are resolved once. -ETIMEDOUT: the file
 * system hangs. -EPERM: others may rename entries of parent or of a directory above it (it is
 * writable by others without the sticky bit, or owned by another user). */
int dd_scratch_new(struct dd_scratch *ret, const char *parent, struct dd_err *err);
/* Open an existing scratch directory by its path. -EPERM: not a private directory of this user. */
int dd_scratch_open(struct dd_scratch *ret, const char *path, struct dd_err *err);
/* Record the calling process as the owner, so that dd_scratch_sweep() can detect stale directories.
 */
void dd_scratch_own(const struct dd_scratch *s);
/* Create a subdirectory. The name must be new. */
int dd_scratch_mkdir(const struct dd_scratch *s, const char *name, struct dd_err *err);
/* Remove an entry with everything below it. 0: it does not exist any more. Follows no symbolic
 * links and enters no directories of other users or file systems. */
int dd_scratch_clear(const struct dd_scratch *s, const char *name);
/* Remove the directory. 0: it does not exist any more; -ENOTEMPTY: something is left. */
int dd_scratch_remove(const struct dd_scratch *s);
/* Remove the directories next to s that dead jobs of this user have left. */
void dd_scratch_sweep(const struct dd_scratch *s);
void dd_scratch_done(struct dd_scratch *s); /* frees s; removes no file */

static inline void dd_auto_scratch(struct dd_scratch *s)
{
    dd_scratch_done(s);
}

#endif
