/* Core files of processes that hold a key. */
#ifndef DD_BASE_CORE_H
#define DD_BASE_CORE_H

#include <sys/types.h>

/* Exclude all memory from core files of this process and its children, also after exec.
 * PR_SET_DUMPABLE would prevent workers from opening /proc/AGENT/fd. Src: core(5), coredump_filter.
 */
void dd_core_empty(void);

/* The core file settings of a process. */
struct dd_core {
    char text[16];
    size_t len; /* 0: unknown */
};

struct dd_core dd_core_of(pid_t pid);
/* Apply settings to this process, a child that is about to execute a program of the user.
 * Async-signal-safe. */
void dd_core_apply(const struct dd_core *c);

#endif
