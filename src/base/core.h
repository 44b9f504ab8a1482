/* Core files of processes that hold a key. */
#ifndef DD_BASE_CORE_H
#define DD_BASE_CORE_H

#include <sys/types.h>

/* Exclude all memory from core files of this process and its children, also after exec.
 * PR_SET_DUMPABLE would prevent workers from opening /proc/AGENT/fd. Src: core(5), coredump_filter.
 */
void dd_core_empty(void);

/* Apply the core file settings of process `pid` to this process, a child that is about to execute a
 * program of the user. */
void dd_core_like(pid_t pid);

#endif
