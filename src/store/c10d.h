/* The server's side of PyTorch's TCPStore protocol: request bytes in, reply bytes out.
 *
 * Uses the engine, but no sockets and no clock. Requests of a connection are executed strictly in
 * order; a wait blocks the requests after it, except PING and CANCEL_WAIT. A request is executed
 * once it is complete, so an interrupted MULTI_SET changes nothing. The protocol has no error
 * reply: a negative result means that the connection must be closed. Operation table A is that of
 * torch 1.13 and 2.0, B that of 2.1, C that of 2.2 and later. Src: docs/protocol/store-c10d.md. */
#ifndef DD_STORE_C10D_H
#define DD_STORE_C10D_H

#include "base/cursor.h"
#include "base/err.h"
#include "store/engine.h"
#include "store/limits.h"
#include "store/outbuf.h"
#include "store/profile.h"
#include "store/runs.h"

struct c10d_conn;
struct c10d_op_info;
struct c10d_pend;
struct store_carrier;
struct store_relay;

/* Callbacks of c10d.c, which never calls them for the connection that is being fed. They must not
 * call functions of c10d.h. */
struct c10d_calls {
    /* A wait of conn has ended: send one byte 0 to it and, if conn is busy, call c10d_resume()
     * later. */
    void (*woken)(struct c10d_conn *conn);
    void (*resume)(struct c10d_conn *conn); /* conn is busy: call c10d_resume() later */
};

/* State shared by the connections of one key space; borrowed from the caller by each of them. */
struct c10d {
    struct store_engine *engine;
    struct store_limits limits;
    enum store_old_clients old;
    const char
        *hopeless;     /* connections that wait for a key with this prefix are closed; NULL: none */
    uint64_t ops_done; /* requests executed so far */
    uint64_t carried_total;       /* connections that relays have opened so far */
    struct store_profile profile; /* its operations by enum c10d_op */
    struct store_runs runs;
    const struct c10d_calls *calls; /* default for new connections */
    const struct c10d_op_info *ops; /* NULL: c10d_ops */
    /* Decide whether a request may be executed now. 1: yes; 0: the connection is stalled until
     * c10d_unstall(); < 0: it must be closed. NULL: always. */
    int (*may_run)(struct c10d_conn *conn, int op, struct dd_rd args);
    void (*on_done)(struct c10d_conn *conn); /* conn is about to be idle; NULL: nothing to do */
    struct store_relay *relay;               /* store/store_relay.h; NULL: this is the store */
    LIST_HEAD(, c10d_conn) stalled;
    LIST_HEAD(, store_carrier) carriers; /* store/carried.h */
};

enum c10d_table { C10D_UNKNOWN, C10D_TABLE_A, C10D_TABLE_B, C10D_TABLE_C };

struct c10d_conn {
    struct c10d *c10d;
    struct store_waiter waiter;
    const struct c10d_calls *calls;
    void *peer; /* the relay's state of this connection; NULL: none */
    LIST_ENTRY(c10d_conn) stalled_link;
    uint32_t executed;      /* number of executed requests, modulo 2^32 */
    struct store_run *run;  /* the torchrun run whose agent has this connection; NULL: none */
    struct c10d_pend *pend; /* input that is not executed yet; NULL: none */
    enum c10d_table table;
    int waiting_op;      /* operation of the last wait */
    uint64_t waiting_ns; /* start of the last wait; 0 without a clock in the profile */
    bool blocked;        /* a wait blocks the requests after it */
    bool stalled;        /* the next request may not be executed yet */
    bool cancels;        /* a CANCEL_WAIT or the end of the input follows: a wait will not last */
    bool busy;           /* paused so that other connections get a turn; c10d_resume() continues */
};

void c10d_conn_init(struct c10d_conn *c, struct c10d *c10d);
/* Cancel the wait of the connection, discard its buffered input and leave its run; c is not freed.
 */
void c10d_conn_done(struct c10d_conn *c);

/* Take all n bytes: execute complete requests that are allowed now, buffer the rest. 0, or -errno
 * with a message if the connection must be closed. Replies are appended to out. Execution pauses
 * and sets busy once out exceeds max_output bytes or the turn's budget is used up. */
int c10d_feed(struct c10d_conn *c, const void *p, size_t n, struct store_out *out,
              struct dd_err *err);
/* Continue with buffered input. */
int c10d_resume(struct c10d_conn *c, struct store_out *out, struct dd_err *err);
/* The input has ended: also execute requests after a wait. May set busy, like c10d_feed(). */
int c10d_end(struct c10d_conn *c, struct store_out *out, struct dd_err *err);

/* Let all stalled connections try again. */
void c10d_unstall(struct c10d *c10d);
/* End the wait of a connection without a reply; requests after the wait may be executed. */
void c10d_end_wait(struct c10d_conn *c);

/* Set a key on behalf of this process instead of a connection, and not within c10d_feed(). Errors
 * as for store_set(). */
int c10d_set(struct c10d *c10d, struct store_bytes key, struct store_bytes value);

/* False if so much input is buffered behind a wait that reading should pause. */
bool c10d_wants_input(const struct c10d_conn *c);
/* Return the minimum size of the incomplete request; 0 if there is none. */
size_t c10d_expects(const struct c10d_conn *c);
/* Return space to read the next bytes of a long request without a copy; *ret_n is 0 if there is no
 * such request. After reading into it, call c10d_got() with the number of bytes instead of
 * c10d_feed(). */
int c10d_room(struct c10d_conn *c, void **ret, size_t *ret_n, struct dd_err *err);
int c10d_got(struct c10d_conn *c, size_t n, struct store_out *out, struct dd_err *err);

#endif
