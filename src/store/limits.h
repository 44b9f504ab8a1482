/* Limits on the resources that peers of the store can use. */
#ifndef DD_STORE_LIMITS_H
#define DD_STORE_LIMITS_H

#include <stddef.h>

/* Operation table of clients that do not send VALIDATE. Torch 2.1 and 1.13 cannot be distinguished
 * reliably, so the user must choose. */
enum store_old_clients { STORE_OLD_REFUSE, STORE_OLD_113, STORE_OLD_21 };

/* A peer that exceeds a limit is disconnected, except for max_output. */
struct store_limits {
    size_t max_key;     /* bytes; default 8192 */
    size_t max_value;   /* bytes of one value; default 64 MiB + 4 KiB */
    size_t max_count;   /* keys in one request; default 131072 */
    size_t max_bytes;   /* stored values and buffers of all connections; default 8 GiB */
    size_t max_conns;   /* default 131072 */
    size_t max_request; /* bytes of one request, and bytes copied into one reply; default 1 GiB */
    size_t
        max_output; /* unsent reply bytes from which reading from the peer pauses; default 1 MiB */
};

void store_limits_default(struct store_limits *l);

#endif
