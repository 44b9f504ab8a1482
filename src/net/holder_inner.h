/* Who holds a TCP port of this machine, for a sentence about it. */
#ifndef DD_NET_HOLDER_H
#define DD_NET_HOLDER_H

#include <stddef.h>
#include <stdint.h>

/* "sshd (pid 812)" or "a program of uid 1001" or "" into out. Reads /proc: slow, for failures only.
 */
void net_port_holder(uint16_t port, char *out, size_t size);

#endif
