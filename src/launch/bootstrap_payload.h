/* What a starter on another node would lose, in one piece: the command, its environment, folder,
 * umask and limits, and the allocation, so that each node has the same idea of the job. Pure.
 *
 *   package = u8 1 | u32_be umask | u32_be n, n soft limits u64 (by number; ~0: none) | str folder
 * | allocation | list arguments | list environment allocation = str source | str job id | str run
 * id | str nodes, folded | u32_be nnodes | str host address | u32_be n, n ports u32_be | str secret
 * | u8 on slurm | u64 end time list = u32_be n, n str          str = u32_be length | bytes without
 * NUL
 */
#ifndef DD_LAUNCH_PACKAGE_H
#define DD_LAUNCH_PACKAGE_H

#include "alloc/alloc.h"
#include "base/strv.h"

#include <stdint.h>

enum { PACKAGE_MAX = 8 << 20, PACKAGE_LIMITS = 16, PACKAGE_STRINGS_MAX = 65536 };

struct package {
    struct dd_strv argv, env;
    char *folder;
    uint32_t umask;
    uint64_t limits[PACKAGE_LIMITS]; /* RLIMIT_* to soft limit */
    uint32_t limits_n;
    struct alloc *alloc; /* index is not carried */
};

int package_encode(struct dd_buf *out, const struct package *p); /* -EMSGSIZE, -ENOMEM */
int package_decode(struct package *ret, const void *data, size_t n, struct dd_err *err);
void package_done(struct package *p);

/* The environment of the starting shell, as a node of its own is to have it: what is true of one
 * node only is the node's (`own`), all else the shell's. Appends to *ret. */
int package_env(struct dd_strv *ret, char *const *shells, char *const *own);

static inline void dd_auto_package(struct package *p)
{
    package_done(p);
}

#endif
