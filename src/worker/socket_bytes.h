/* Bytes that went through the TCP connections of this network namespace, by the inodes of their
 * sockets. Src: sock_diag(7), linux/inet_diag.h. */
#ifndef DD_WORKER_SOCKET_BYTES_H
#define DD_WORKER_SOCKET_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SOCKET_BYTES_MAX = 1 << 20 }; /* number of connections; bounds memory and time */

struct socket_bytes_entry {
    uint64_t inode;
    uint64_t bytes; /* received, and sent and acknowledged */
};

struct socket_bytes {
    struct socket_bytes_entry *v; /* ordered by inode once read */
    size_t n, cap;
};

/* Request all established connections from the kernel. 0 or -errno, -EOVERFLOW if there are more
 * than SOCKET_BYTES_MAX: *ret is then incomplete, and a connection that it lacks may be busy. The
 * caller frees *ret either way. */
int socket_bytes_read(struct socket_bytes *ret);
/* Add the connections of one answer of the kernel. Return 1 if more answers follow, 0 if this was
 * the last, -EPROTO, -ENOMEM, -EOVERFLOW, or the error that the kernel reports. Pure. */
int socket_bytes_parse(struct socket_bytes *to, const void *answer, size_t len);
bool socket_bytes_find(const struct socket_bytes *s, uint64_t inode, uint64_t *ret_bytes);
void socket_bytes_done(struct socket_bytes *s);

static inline void dd_auto_socket_bytes(struct socket_bytes *s)
{
    socket_bytes_done(s);
}

#endif
