/* The hello: the first messages on a link, before TLS. They name the job and the node. Pure codec,
 * specified in docs/protocol/link-1.md.
 *
 * agent  -> daemon: dd 'd' 'r' version(1) | u16_be length | job_id NUL node name NUL
 * daemon -> agent : dd 'd' 'r' version(1) | u16_be length | status(1) method(1) | credential NUL
 *
 * If status is HELLO_OK and method is not NET_KEY_NONE, a TLS 1.3 handshake with an external PSK
 * follows. The PSK identity is the job id. */
#ifndef DD_NET_HELLO_H
#define DD_NET_HELLO_H

#include "base/buf.h"
#include "net/key.h"

#include <stddef.h>

enum {
    HELLO_FIRST_BYTE = 0xdd,
    HELLO_VERSION = 1,
    HELLO_VERSION_AT = 3,
    HELLO_MAX = 8192,
    HELLO_CALL_MAX = 518
};

enum hello_status { HELLO_OK, HELLO_OTHER_JOB, HELLO_BAD_VERSION, HELLO_FULL };

struct hello_call {
    char job_id[256];
    char node[256]; /* name of the connecting node as it reports it; not authenticated */
};

struct hello_reply {
    enum hello_status status;
    enum net_key_method method;
    char cred[4096]; /* MUNGE credential; NET_KEY_HOME: name of the key file; else "" */
};

int hello_call_encode(struct dd_buf *out, const struct hello_call *c);
int hello_reply_encode(struct dd_buf *out, const struct hello_reply *r);
/* Return the bytes consumed; 0: incomplete; -EPROTO: malformed; -EPROTONOSUPPORT: another protocol
 * version (the daemon replies with HELLO_BAD_VERSION in its own version). */
int hello_call_decode(struct hello_call *ret, const void *p, size_t n);
int hello_reply_decode(struct hello_reply *ret, const void *p, size_t n);
/* Return the size of the whole hello, as far as its first n bytes determine it. A reader that reads
 * no more than this leaves the bytes after the hello in the socket. */
size_t hello_need(const void *p, size_t n);

#endif
