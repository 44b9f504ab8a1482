/* Measures one TCP connection between two nodes, unencrypted like the connections of workers: its
 * round trips, and its bandwidth in one direction (ddctl doctor --net).
 *
 * The server listens at a port that the kernel chooses, in a process of its own, so that a node can
 * measure and be measured at the same time. A connection begins with the token of the server, which
 * the client has received over a link (net/link.h). Then each byte PAIR_ECHO is returned; after
 * PAIR_STREAM the server discards what it receives, until the end of the connection. */
#ifndef DD_DOCTOR_PAIR_H
#define DD_DOCTOR_PAIR_H

#include "base/err.h"
#include "net/addr.h"

#include <stdint.h>
#include <sys/types.h>

enum { PAIR_TOKEN = 32, PAIR_ECHO = 'e', PAIR_STREAM = 's' };

/* The limits of one measurement. */
enum {
    PAIR_CONNECT_MS = 2000,
    PAIR_ECHO_MS = 1000,
    PAIR_ECHOES_MAX = 2000,
    PAIR_STREAM_MS = 1000,
    PAIR_STREAM_MIB_MAX = 4096,
    PAIR_CALL_MS = 5000, /* limit of one system call, since the peer may be busy */
    PAIR_MS_MAX = PAIR_CONNECT_MS + PAIR_ECHO_MS + PAIR_STREAM_MS + 2 * PAIR_CALL_MS,
};

/* Make a connection blocking, with a time limit for each call, and without delays of small
 * segments. 0 or -errno. */
int pair_set_up(int fd);

/* ---- the server ---- */

struct pair_server {
    pid_t pid; /* 0: no server */
    int alive; /* pipe that reaches end of file when the process ends; -1: no server */
    uint16_t port;
    char token[PAIR_TOKEN + 1];
};

/* Start the process, which serves one measurement. It ends after that, after limit_ms without one,
 * or with this process. */
int pair_serve(struct pair_server *ret, unsigned limit_ms, struct dd_err *err);
/* Wait at most wait_ms for the end of the server, then kill it. */
void pair_server_done(struct pair_server *s, unsigned wait_ms);

/* Format what a client needs, "ADDRESS/PORT/TOKEN", or "ADDRESS" if there is no server. ADDRESS may
 * be empty. -E2BIG. */
int pair_offer(const struct pair_server *s, const char *address, char *out, size_t size);

/* ---- the client ---- */

struct pair_offer {
    char address[NET_ADDR_TEXT]; /* "": unknown */
    uint16_t port;               /* 0: the peer offers no measurement */
    char token[PAIR_TOKEN + 1];
};

/* Parse "ADDRESS" or "ADDRESS/PORT/TOKEN". -EINVAL. Pure. */
int pair_offer_parse(struct pair_offer *ret, const char *text);

struct pair_result {
    int round_trips;
    uint64_t latency_ns; /* median of the round trips */
    uint64_t bytes;      /* bytes of the stream that the peer has acknowledged */
    uint64_t took_ns;    /* duration of the stream */
};

/* Measure the connection to this address and port, for at most PAIR_MS_MAX. iface: interface to
 * use; NULL: any. -errno with a message. */
int pair_measure(struct pair_result *ret, const struct net_addr *to, const char *iface,
                 const char *token, struct dd_err *err);

#endif
