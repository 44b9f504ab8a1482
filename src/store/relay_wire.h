/* Messages between the daemon's store and the relay of a node: the data of FRAME_STORE
 * frames. Pure codec.
 *
 *     u32 round | u8 type | fields of the type, see relay_wire_fields
 *
 * Numbers are little-endian. Src: docs/protocol/store-relay.md. */
#ifndef DD_STORE_RELAY_WIRE_H
#define DD_STORE_RELAY_WIRE_H

#include "base/buf.h"
#include "store/blob.h"

#include <stdint.h>

enum {
    RELAY_CHUNK = 128 * 1024,        /* bytes of a DATA message of the relay */
    RELAY_WINDOW = 8 * 1024 * 1024,  /* maximum cost of messages in flight, without CREDIT */
    RELAY_CREDIT_FROM = 1024 * 1024, /* cost of received messages at which CREDIT is sent */
    RELAY_HEAD_MAX = 32,             /* maximum bytes of a message besides its key and data */
};

enum relay_type {
    RELAY_BEGIN = 1, /* the relay of this round exists; its earlier connections are gone */
    RELAY_OPEN,      /* conn; n: enum c10d_table */
    RELAY_DATA,      /* conn, data; n, from the daemon: number of answered requests of conn */
    RELAY_CLOSE,     /* conn; from the relay: its input has ended; from the daemon: close conn */
    RELAY_ASK,       /* key: as for store_lease_ask() */
    RELAY_VALUE,     /* key, data */
    RELAY_EACH,      /* key */
    RELAY_RECALL,    /* key */
    RELAY_DROPPED,   /* the oldest RECALL is answered */
    RELAY_CREDIT,    /* n: cost of messages that have been taken */
    RELAY_END,       /* the relay is gone, with its connections and copies */
    RELAY_TYPES
};

struct relay_msg {
    uint32_t round;
    enum relay_type type;
    uint32_t conn, n;
    struct store_bytes key, data; /* borrowed */
};

/* Append to the empty *out. 0, -ENOMEM or -EMSGSIZE. */
int relay_wire_encode(struct dd_buf *out, const struct relay_msg *m);
/* Return the cost of a message in the window: the bytes of key and data, and RELAY_HEAD_MAX; 0
 * without key and data. */
size_t relay_wire_cost(const struct relay_msg *m);
/* 0 or -EPROTO. */
int relay_wire_decode(struct relay_msg *ret, const void *p, size_t n);

#endif
