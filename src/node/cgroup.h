/* Enumerates the cgroups of this process that account for memory, of cgroups v1 and v2. */
#ifndef DD_NODE_CGROUP_H
#define DD_NODE_CGROUP_H

#include "base/buf.h"

#include <stdbool.h>

/* version: 1 or 2. mount: directory of the hierarchy below /sys/fs/cgroup, "" or "/memory". cgroup:
 * a path that begins with '/'; in a container, it need not exist below the mount. Both texts are
 * lent for the call. */
typedef void node_cgroup_f(void *arg, int version, const char *mount, const char *cgroup);
/* Call fn for each of these cgroups. root: "", or a directory with proc and sys for tests. Src:
 * cgroups(7), /proc/[pid]/cgroup. */
void node_cgroup_each(const char *root, node_cgroup_f *fn, void *arg);

enum { NODE_CGROUP_TEXT_MAX = 1 << 16 };
/* Replace the content of `out` by that of a small file. False if the file cannot be read, or
 * exceeds the limit of `out`. */
bool node_cgroup_read(struct dd_buf *out, const char *path);

#endif
