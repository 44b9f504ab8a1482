/* Derives a name that is equal on processors that run the same machine code. */
#ifndef DD_NODE_CPU_KIND_H
#define DD_NODE_CPU_KIND_H

#include <stddef.h>

enum { NODE_CPU_KIND = 40 };

/* Write "MACHINE-HASH". The hash is that of the model and the features of the first processor in
 * cpuinfo, the text of /proc/cpuinfo. machine: from uname(2). */
void node_cpu_kind_of(char ret[NODE_CPU_KIND], const char *machine, const char *cpuinfo);
/* Call node_cpu_kind_of() for this machine. */
void node_cpu_kind(char ret[NODE_CPU_KIND]);

#endif
