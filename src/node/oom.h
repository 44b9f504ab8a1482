/* Detects whether the kernel's OOM killer has killed processes of our cgroup. */
#ifndef DD_NODE_OOM_H
#define DD_NODE_OOM_H

#include <stdint.h>

/* Return the number of kills so far, over both versions of cgroups; 0 if unknown. If it grows, a
 * process was killed in between. root: "", or a directory with proc and sys for tests. The cgroup
 * of the killed process counts it, even if the limit of an ancestor was reached. Src: cgroup-v2.rst
 * (memory.events: oom_kill, of the cgroup and those below it), cgroup-v1/memory.rst
 * (memory.oom_control). */
uint64_t node_oom_kills(const char *root);

#endif
