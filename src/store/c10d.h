/* PyTorch's TCPStore protocol, the server's side: request bytes in, reply bytes out.
 *
 * Knows the engine, but no sockets and no clock. Requests of one connection are carried out
 * strictly in order; one that waits holds up those behind it, except PING and CANCEL_WAIT. A
 * request is carried out when it is complete, so a broken off MULTI_SET changes nothing. There is
 * no error reply in this protocol: a negative result means that the connection must be closed.
 * Table A of operations is that of torch 1.13 and 2.0, B that of 2.1, C that of all since 2.2.
 * Src: docs/protocol/store-c10d.md.
 */
#ifndef DD_STORE_C10D_H
#define DD_STORE_C10D_H

#include "base/err.h"
#include "store/engine.h"
#include "store/limits.h"
#include "store/out.h"
#include "store/runs.h"

struct c10d_conn;
struct c10d_pend;

/* What the connections of one key space share. Lent by the caller to each of them. */
struct c10d {
    struct store_engine *engine;
    struct store_limits limits;
    enum store_old_clients old;
    const char *hopeless; /* who waits for a key that begins so is closed; NULL: nobody */
    uint64_t ops;         /* requests carried out */
    struct store_runs runs;
    /* Tells that a wait of conn is over: the caller sends it one byte 0 and, when conn is busy,
     * calls c10d_resume() for it later. Nothing here may be called from within, and it is never
     * called for the connection that is being fed. */
    void (*on_woken)(struct c10d_conn *conn);
};

enum c10d_table { C10D_UNKNOWN, C10D_TABLE_A, C10D_TABLE_B, C10D_TABLE_C };

struct c10d_conn {
    struct c10d *c10d;
    struct store_waiter waiter;
    struct store_run *run;  /* of torchrun, that it is an agent of; NULL */
    struct c10d_pend *pend; /* input that was not yet carried out; NULL while there is none */
    enum c10d_table table;
    bool blocked; /* behind a wait */
    bool busy;    /* stopped for the sake of others: c10d_resume() goes on */
};

void c10d_conn_init(struct c10d_conn *c, struct c10d *c10d);
void c10d_conn_done(struct c10d_conn *c); /* forgets its wait; idle again */

/* Takes all n bytes: carries out what is complete and allowed now, keeps the rest. 0, or a
 * negative errno with a sentence when the connection must be closed. Replies go to out; once more
 * than max_output bytes are there, or a turn's share of work is done, it stops and is busy. */
int c10d_feed(struct c10d_conn *c, const void *p, size_t n, struct store_out *out,
              struct dd_err *err);
/* Goes on with input that was kept. */
int c10d_resume(struct c10d_conn *c, struct store_out *out, struct dd_err *err);
/* No more input will come: what is behind a wait is carried out too; busy as above. */
int c10d_end(struct c10d_conn *c, struct store_out *out, struct dd_err *err);

/* Sets a key for us, not for a connection that is being fed. */
int c10d_set(struct c10d *c10d, struct store_bytes key, struct store_bytes value);

/* False when so much is kept behind a wait that no more should be read. */
bool c10d_wants_input(const struct c10d_conn *c);
/* Bytes that an incomplete request has at least; 0 when there is none. */
size_t c10d_expects(const struct c10d_conn *c);
/* When a long request is on its way: room to read its next bytes into, without a copy; *ret_n is 0
 * when there is none. c10d_got() with the number of bytes put there then replaces c10d_feed(). */
int c10d_room(struct c10d_conn *c, void **ret, size_t *ret_n, struct dd_err *err);
int c10d_got(struct c10d_conn *c, size_t n, struct store_out *out, struct dd_err *err);

#endif
