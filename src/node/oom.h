/* Whether the kernel has killed processes of our cgroup for lack of memory. */
#ifndef DD_NODE_OOM_H
#define DD_NODE_OOM_H

#include <stdint.h>

/* How many so far, over both versions of cgroups; 0 where that is not told. A later, larger number
 * means that it has happened in between. root: "" or where a test keeps its proc and sys. Src:
 * cgroup-v2.rst (memory.events: oom_kill, of the cgroup and those below it), cgroup-v1/memory.rst
 * (memory.oom_control). The victim's own cgroup counts it, whosever limit was reached. */
uint64_t node_oom_kills(const char *root);

#endif
