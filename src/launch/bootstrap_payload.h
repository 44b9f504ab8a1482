/* Encodes and decodes the payload of a started node. It contains what a starter does not forward
 * reliably (the command and its environment, directory, umask and limits), and the allocation, so
 * that all nodes have the same one. Pure.
 *
 *   payload    = u8 version, 3 | u32_be umask |
 *                u32_be n, n soft limits u64_be (by number of RLIMIT_*; ~0: none) |
 *                str directory | allocation | list arguments | list environment
 *   allocation = str source | str job id | str run id | str requeue id | u8 requeued |
 *                str nodes, folded | u32_be nnodes | str host address |
 *                u32_be n, n ports u32_be | str secret | u8 on slurm | u64_be end time in s |
 *                list GPUs of each node
 *   list       = u32_be n, n str
 *   str        = u32_be length | bytes without NUL
 */
#ifndef DD_LAUNCH_BOOTSTRAP_PAYLOAD_H
#define DD_LAUNCH_BOOTSTRAP_PAYLOAD_H

#include "alloc/alloc.h"
#include "base/strv.h"

#include <stdint.h>

enum { BOOTSTRAP_MAX = 8 << 20, BOOTSTRAP_LIMITS = 16, BOOTSTRAP_STRINGS_MAX = 65536 };

struct bootstrap_payload {
    struct dd_strv argv, env;
    char *directory;
    uint32_t umask;
    uint64_t limits[BOOTSTRAP_LIMITS]; /* soft limits, by the number of RLIMIT_* */
    uint32_t limits_n;
    struct alloc *alloc; /* the payload does not contain alloc->index */
};

int bootstrap_payload_encode(struct dd_buf *out,
                             const struct bootstrap_payload *p); /* -EMSGSIZE, -ENOMEM */
int bootstrap_payload_decode(struct bootstrap_payload *ret, const void *data, size_t n,
                             struct dd_err *err);
void bootstrap_payload_done(struct bootstrap_payload *p);

/* Merge two environments for a started node: variables that describe one machine come from the node
 * (`own`), all others from the launching shell. Append to *ret. */
int bootstrap_payload_env(struct dd_strv *ret, char *const *shells, char *const *own);

static inline void dd_auto_bootstrap_payload(struct bootstrap_payload *p)
{
    bootstrap_payload_done(p);
}

#endif
