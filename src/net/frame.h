/* Frames of the link: u32_be length of what follows the header | u16_be type | u16_be version. Pure
 * codec.
 *
 * Type FRAME_CONTROL carries one JSON object (rdzv/msg.h), FRAME_BYE says that the end of the
 * stream is meant, FRAME_PING (empty) only that the sender lives, FRAME_EXCHANGE a piece
 * of what nodes tell each other (rdzv/exchange.h), FRAME_BOOTSTRAP what a node needs to begin
 * (launch/bootstrap_payload.h), FRAME_LAUNCH and FRAME_OUTPUT what started and starting nodes tell
 * each other (launch/launch_msg.h). Unknown types are skipped by the receiver.
 */
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
    FRAME_LAUNCH = 7
};

struct frame {
    uint16_t type, version;
    uint32_t len;
    const unsigned char *data; /* lent from the input */
};

void frame_header(unsigned char out[FRAME_HEADER], uint16_t type, uint32_t n);
int frame_encode(struct dd_buf *out, uint16_t type, const void *data, size_t n); /* -EMSGSIZE */
/* > 0 bytes consumed (header and data), 0 need more (*need, may be NULL, says how many in all),
 * -EPROTO: longer than max. */
long frame_decode(struct frame *ret, const void *p, size_t n, uint32_t max, size_t *need);

#endif
