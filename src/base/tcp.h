/* Options of TCP connections. */
#ifndef DD_BASE_TCP_H
#define DD_BASE_TCP_H

/* Set the options of both ends of a connection to the store: no delay of small requests, and
 * keepalive probes that detect a vanished host after 4 min. Sockets without these options (a
 * socketpair in tests) remain as they are; none is essential. */
void dd_tcp_tune(int fd);

#endif
