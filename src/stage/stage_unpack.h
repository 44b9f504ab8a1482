/* Writes chunks below a directory. No path leaves it: neither by ".." nor through a symbolic link.
 * Several threads may unpack chunks of one phase at once. The process must have the umask 0: a call
 * of chmod for each file would cost time. */
#ifndef DD_STAGE_STAGE_UNPACK_H
#define DD_STAGE_STAGE_UNPACK_H

#include "base/err.h"
#include "stage/stage_codec.h"

struct stage_unpack_cfg {
    int root;             /* descriptor of the directory */
    const char *node;     /* name of this node, for messages */
    const char *path;     /* path of the directory, for messages and for the changes of `sources` */
    char *const *sources; /* directories whose paths become those of the copies in the first lines
                             of scripts, in pyvenv.cfg and in targets of symbolic links; NULL:
                             change nothing */
};

/* Errors name the node and the directory. -EPROTO: the chunk is malformed, or has an entry of
 * another phase. */
int stage_unpack(const struct stage_unpack_cfg *cfg, enum stage_phase phase,
                 const unsigned char *raw, size_t n, struct dd_err *err);

#endif
