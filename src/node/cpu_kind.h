/* A name for processors that run the same machine code. */
#ifndef DD_NODE_CPU_KIND_H
#define DD_NODE_CPU_KIND_H

#include <stddef.h>

enum { NODE_CPU_KIND = 40 };

/* "MACHINE-HASH", of the model and the features of the first processor in the text of
 * /proc/cpuinfo. */
void node_cpu_kind_of(char ret[NODE_CPU_KIND], const char *machine, const char *cpuinfo);
/* Call node_cpu_kind_of() for this machine. */
void node_cpu_kind(char ret[NODE_CPU_KIND]);

#endif
