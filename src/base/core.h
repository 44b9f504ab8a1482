/* Core files of processes that hold a key. */
#ifndef DD_BASE_CORE_H
#define DD_BASE_CORE_H

#include <sys/types.h>

/* Leave all memory out of this process's core files, wherever they are written. Children inherit
 * that, also through exec. Not PR_SET_DUMPABLE: workers open /proc/AGENT/fd. Src: core(5),
 * coredump_filter. */
void dd_core_empty(void);

/* In a child, before it runs a program of the user: core files hold what those of process `pid` do.
 */
void dd_core_like(pid_t pid);

#endif
