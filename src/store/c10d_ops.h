/* The operations of the protocol as a table: names, arguments and functions. */
#ifndef DD_STORE_C10D_OPS_H
#define DD_STORE_C10D_OPS_H

#include "base/cursor.h"
#include "store/c10d.h"

/* Operation codes of table C, used internally for all tables. */
enum c10d_op {
    C10D_VALIDATE,
    C10D_SET,
    C10D_COMPARE_SET,
    C10D_GET,
    C10D_ADD,
    C10D_CHECK,
    C10D_WAIT,
    C10D_GETNUMKEYS,
    C10D_DELETE_KEY,
    C10D_APPEND,
    C10D_MULTI_GET,
    C10D_MULTI_SET,
    C10D_CANCEL_WAIT,
    C10D_PING,
    C10D_QUEUE_PUSH,
    C10D_QUEUE_POP,
    C10D_QUEUE_LEN,
    C10D_LIST_KEYS,
    C10D_BARRIER,
    C10D_WATCH_KEY, /* only in table A */
    C10D_OPS
};

/* One complete request. */
struct c10d_request {
    struct c10d_conn *conn;
    struct dd_rd args;
    struct store_bytes raw; /* the whole request, as received */
    struct store_out *out;
    struct store_blob **blob; /* buffer that contains the request and that may be taken for a large
                                 value; NULL: none */
    size_t work;              /* cost beyond 1: number of keys touched */
};

struct c10d_op_info {
    const char *name;
    /* k: key, v: value, i: 64-bit number, u: 32-bit number, #: count of repetitions of the fields
     * after it */
    const char *args;
    int (*run)(struct c10d_request *r, struct dd_err *err);
};

extern const struct c10d_op_info c10d_ops[C10D_OPS];

/* Return the operation for a code; -1: none. */
int c10d_op_of(enum c10d_table table, unsigned char code);

#endif
