/* What a peer of the store may make us do. */
#ifndef DD_STORE_LIMITS_H
#define DD_STORE_LIMITS_H

#include <stddef.h>

/* Which op table a client without VALIDATE speaks. Torch 2.1 and 1.13 cannot be told apart for
 * sure, so that a person must say. */
enum store_old_clients { STORE_OLD_REFUSE, STORE_OLD_113, STORE_OLD_21 };

/* What goes over a limit closes the connection. */
struct store_limits {
    size_t max_key;     /* bytes; default 8192 */
    size_t max_value;   /* bytes of one value; default 64 MiB + 4 KiB */
    size_t max_count;   /* keys in one request; default 131072 */
    size_t max_bytes;   /* stored, or buffered for all connections; default 8 GiB */
    size_t max_conns;   /* default 131072 */
    size_t max_request; /* bytes of one request, and copied into one reply; default 1 GiB */
    size_t max_output;  /* bytes; who leaves more of them unread is not read from; default 1 MiB */
};

void store_limits_default(struct store_limits *l);

#endif
