/* The owner of a listening TCP port of this machine, for error messages. */
#ifndef DD_NET_PORT_OWNER_INNER_H
#define DD_NET_PORT_OWNER_INNER_H

#include <stddef.h>
#include <stdint.h>

/* Write "sshd (pid 812)", "a program of uid 1001" or "" to out. Reads /proc: slow, use on failure
 * only. */
void net_port_holder(uint16_t port, char *out, size_t size);

#endif
