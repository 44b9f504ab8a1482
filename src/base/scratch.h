/* A private directory among temporary files: a random name, mode 0700, and a descriptor by which it
 * is emptied, so that its removal never depends on what a path leads to by then. Other users can
 * neither enter it nor take its name while it is there; it is made once for a job and stays until
 * the end, so no name is used twice. */
#ifndef DD_BASE_SCRATCH_H
#define DD_BASE_SCRATCH_H

#include "base/err.h"

struct dd_scratch {
    char *path; /* absolute; NULL: there is none */
    int fd;     /* of the directory, close-on-exec; -1: there is none */
};

#define DD_SCRATCH_NONE (struct dd_scratch){.fd = -1}

/* The name without links of a directory in which temporary files are safe: *ret is the caller's.
 * Errors as below. */
int dd_scratch_parent(char **ret, const char *parent, struct dd_err *err);
/* Makes a directory below parent, whose symbolic links are resolved once. -ETIMEDOUT: its file
 * system hangs. -EPERM: others may rename what is in parent or in a directory above it (it is
 * writable by others without the sticky bit, or another user's). */
int dd_scratch_new(struct dd_scratch *ret, const char *parent, struct dd_err *err);
/* An existing one, by its path. -EPERM: it is not a private directory of this user. */
int dd_scratch_open(struct dd_scratch *ret, const char *path, struct dd_err *err);
/* Writes into it which process uses it, so that dd_scratch_sweep() can tell when nobody does: the
 * calling one. */
void dd_scratch_own(const struct dd_scratch *s);
/* A directory in it. The name must be new. */
int dd_scratch_mkdir(const struct dd_scratch *s, const char *name, struct dd_err *err);
/* Removes an entry of it with everything below. 0: it is gone, or was not there. Follows no
 * symbolic link, enters no directory of another user or file system. */
int dd_scratch_clear(const struct dd_scratch *s, const char *name);
/* Removes all of it. 0: it is gone, whoever has removed it; -ENOTEMPTY: something is left. */
int dd_scratch_remove(const struct dd_scratch *s);
/* Removes the directories beside s that dead jobs of this user have left. */
void dd_scratch_sweep(const struct dd_scratch *s);
void dd_scratch_done(struct dd_scratch *s); /* forgets it; removes nothing */

static inline void dd_auto_scratch(struct dd_scratch *s)
{
    dd_scratch_done(s);
}

#endif
