/* Output buffer of one connection: small replies are copied, large values are shared. */
#ifndef DD_STORE_OUTBUF_H
#define DD_STORE_OUTBUF_H

#include "base/buf.h"
#include "store/blob.h"

#include <stdint.h>
#include <sys/uio.h>

/* A shared value between two bytes of the buffer. */
struct store_out_ref {
    size_t pos; /* position in the buffer */
    struct store_value value;
};

struct store_out {
    struct store_account *account;
    struct dd_buf buf;
    size_t head; /* bytes of buf already sent */
    struct store_out_ref *refs;
    size_t refs_head, refs_n, refs_cap;
    size_t total;   /* bytes not yet sent */
    size_t charged; /* memory of buf and refs charged to the account */
};

/* account: charged for the buffer; max: limit of copied bytes. */
void store_out_init(struct store_out *o, struct store_account *account, size_t max);
/* Drop unsent output and free all memory; o can be used again. _clear keeps a small buffer. */
void store_out_done(struct store_out *o);
void store_out_clear(struct store_out *o);

/* Return 0, -ENOMEM, -ENOSPC (account) or -EMSGSIZE (max). */
int store_out_bytes(struct store_out *o, const void *p, size_t n);
int store_out_value(struct store_out *o, const struct store_value *v); /* shares */
int store_out_u8(struct store_out *o, uint8_t v);
int store_out_u32(struct store_out *o, uint32_t v);
int store_out_u64(struct store_out *o, uint64_t v);

/* Fill at most n elements for writev(2); return the number of elements. */
size_t store_out_iov(const struct store_out *o, struct iovec *iov, size_t n);
void store_out_sent(struct store_out *o, size_t n); /* n <= total */

#endif
