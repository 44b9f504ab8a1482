/* A store, two nodes with relays, and clients, in one process without sockets. Messages between
 * the store and the relays are delivered when the test says so. */
#ifndef DD_TESTS_RELAY_WORLD_H
#define DD_TESTS_RELAY_WORLD_H

#include "base/buf.h"
#include "store/carried.h"
#include "store/store_relay.h"

#include <sys/queue.h>

enum { WORLD_NODES = 2, WORLD_PER_NODE = 2, WORLD_CLIENTS = 1 + WORLD_NODES * WORLD_PER_NODE };

struct world_msg {
    STAILQ_ENTRY(world_msg) link;
    size_t n;
    unsigned char p[];
};
STAILQ_HEAD(world_queue, world_msg);

/* Client 0 is connected to the store, the others to the relay of their node. */
struct world_client {
    struct c10d_conn conn;
    struct store_out out;
    struct dd_buf said; /* all that it has received */
    bool open;
};

struct world_node {
    struct world *world;
    struct c10d c10d;
    struct store_relay *relay;
    struct store_carrier *carrier;
    struct world_queue up, down; /* not delivered yet */
};

struct world {
    struct c10d store;
    struct world_node nodes[WORLD_NODES];
    struct world_client clients[WORLD_CLIENTS];
    uint32_t round;
    bool soon;    /* a carrier has connections to continue */
    bool hostile; /* messages that break the protocol are under way */
};

void world_start(struct world *w, const struct store_limits *limits);
void world_end(struct world *w);
void world_open(struct world *w, int i);
void world_close(struct world *w, int i); /* as if its process had ended */
/* Send bytes of client i; false: its connection is closed now. */
bool world_send(struct world *w, int i, const void *p, size_t n);
/* Deliver a message of the test's own to the store (up) or to the relay of a node. */
void world_forge(struct world *w, int node, bool up, const void *p, size_t n);
/* Deliver one message from or to a node; false: there is none. */
bool world_deliver(struct world *w, int node, bool up);
void world_settle(struct world *w); /* deliver all */
/* All clients are closed and all keys are gone; the next round begins. */
void world_next_round(struct world *w);

#endif
