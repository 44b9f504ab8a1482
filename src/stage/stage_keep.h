/* Copies that stay on the node after a job (--stage-keep). They are in one private directory of the
 * user beside the directory for copies, each under a name made from the digest of the listing. A
 * copy in use is locked (flock, shared) by the agent of each job that uses it. */
#ifndef DD_STAGE_STAGE_KEEP_H
#define DD_STAGE_STAGE_KEEP_H

#include "base/scratch.h"
#include "stage/stage_codec.h"

enum { STAGE_KEEP_COPIES = 3, STAGE_KEEP_NAME = 2 * STAGE_DIGEST + 1 };

void stage_keep_name(char name[STAGE_KEEP_NAME], const unsigned char digest[STAGE_DIGEST]);
/* Open the directory of kept copies that lies beside the directory `path`. create: make it if it
 * does not exist. -EPERM: the directory of kept copies is not private to this user. */
int stage_keep_open(struct dd_scratch *ret, const char *path, bool create, struct dd_err *err);
/* Open and lock the kept copy of that name, and mark it as used. -ENOENT: there is none. The lock
 * lasts until all descriptors that ret->fd has been duplicated to are closed. */
int stage_keep_take(struct dd_scratch *ret, const struct dd_scratch *kept, const char *name);
/* Move the complete copy in entry `from` of `made` to entry `name` of `kept`. -EEXIST: another job
 * has kept this copy. */
int stage_keep_store(const struct dd_scratch *kept, const struct dd_scratch *made, const char *from,
                     const char *name);
/* Remove the copies that no job uses, except the `most` used last. */
void stage_keep_prune(const struct dd_scratch *kept, int most);

#endif
