/* Frames of a link: u32_be length of the data | u16_be type | u16_be version | data. Pure codec.
 *
 * FRAME_CONTROL carries one JSON object (rdzv/msg.h). FRAME_BYE marks a deliberate end of the
 * stream. FRAME_PING is empty and only shows that the sender is alive. FRAME_EXCHANGE carries a
 * part of an exchange between nodes (rdzv/exchange.h), FRAME_BOOTSTRAP the bootstrap payload
 * (launch/bootstrap_payload.h), FRAME_LAUNCH and FRAME_OUTPUT messages between a parent and the
 * nodes that it starts (launch/launch_msg.h), FRAME_STAGE parts of a staged directory
 * (stage/stage_codec.h), FRAME_STORE messages between the store and the relays of the nodes
 * (store/relay_wire.h). Receivers skip unknown types. */
#ifndef DD_NET_FRAME_H
#define DD_NET_FRAME_H

#include "base/buf.h"

#include <stdint.h>

enum { FRAME_HEADER = 8, FRAME_VERSION = 1, FRAME_MAX = 16 << 20 };
enum frame_type {
    FRAME_CONTROL = 1,
    FRAME_BYE = 2,
    FRAME_OUTPUT = 3,
    FRAME_PING = 4,
    FRAME_EXCHANGE = 5,
    FRAME_BOOTSTRAP = 6,
    FRAME_LAUNCH = 7,
    FRAME_STAGE = 8,
    FRAME_STORE = 9
};

struct frame {
    uint16_t type, version;
    uint32_t len;
    const unsigned char *data; /* points into the input */
};

void frame_header(unsigned char out[FRAME_HEADER], uint16_t type, uint32_t n);
/* 0, -EMSGSIZE or -ENOMEM. */
int frame_encode(struct dd_buf *out, uint16_t type, const void *data, size_t n);
/* Return the bytes consumed (header and data); 0: incomplete, *need (may be NULL) is set to the
 * size of header and data; -EPROTO: longer than max. */
long frame_decode(struct frame *ret, const void *p, size_t n, uint32_t max, size_t *need);

#endif
