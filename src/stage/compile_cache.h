/* --compile-cache: which caches of compilers move to the node, how their files belong together, and
 * which of them stay in the shared directory. Pure.
 *
 * The directory of a cache, on the node and shared, has one directory for each tool. Files belong
 * to units, which are complete or useless:
 *
 *   inductor/…, jax/…      each file is a unit; its name is made from what it was compiled from
 *   triton/KEY/…           the directory; its "__grp__" file lists the others
 *   cuda/SNAPSHOT/…, miopen/SNAPSHOT/…, numba/SNAPSHOT/…
 *                          a tool's whole cache at the end of a job, where its files refer to
 *                          each other; on a node the name of the snapshot is "now"
 *
 * The last file of a unit is written after the others and removed before them: if it exists, the
 * unit is complete. */
#ifndef DD_STAGE_COMPILE_CACHE_H
#define DD_STAGE_COMPILE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMPILE_CACHE_NOW "now"                  /* name of the snapshot on a node */
#define COMPILE_CACHE_COMPLETE ".ddrun-complete" /* last file of a snapshot */

struct compile_cache_var {
    const char *name;
    const char *dir;   /* value, relative to the directory of the cache; NULL: see `value` */
    const char *value; /* value if dir is NULL */
};

/* The variables; ends with a NULL name. */
extern const struct compile_cache_var compile_cache_vars[];
/* The tools whose cache is kept as a snapshot; ends with NULL. */
extern const char *const compile_cache_snapshots[];

/* Paths are relative to the directory of the cache. */

/* Return how many leading bytes of the path name the unit of the file. */
size_t compile_cache_unit(const char *path);
/* True if the file is a part of a snapshot. */
bool compile_cache_in_snapshot(const char *path);
/* True for the last file of a unit. */
bool compile_cache_is_last(const char *path);
/* True for locks and for files that are still being written. */
bool compile_cache_is_temporary(const char *path);
/* Compare for qsort(): units stay together, and each ends with its last file. */
int compile_cache_order(const char *a, const char *b);

enum compile_cache_fate {
    COMPILE_CACHE_USE,
    COMPILE_CACHE_LEAVE,  /* a snapshot that is being written */
    COMPILE_CACHE_REMOVE, /* an old snapshot, or a unit that exceeds the size of the cache */
};

struct compile_cache_file {
    const char *path;
    uint64_t size;
    int64_t used; /* time of the last use, in seconds of the wall clock */
    enum compile_cache_fate fate;
};

/* Set the fate of each file. Of the snapshots of a tool, only the newest complete one can stay; of
 * these and all other units, the most recently used ones stay, with at most `most` bytes. The files
 * of a unit must be adjacent in v. 0 or -ENOMEM. */
int compile_cache_trim(struct compile_cache_file *v, size_t n, uint64_t most, int64_t now);

#endif
