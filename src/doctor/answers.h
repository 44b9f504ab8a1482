/* Collects the nodes' results over the network if the starter does not return their output: the
 * requesting node listens; each other node proves the job's key and sends its result. */
#ifndef DD_DOCTOR_ANSWERS_H
#define DD_DOCTOR_ANSWERS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "net/key.h"

#include <stdint.h>

struct event_base;

enum { ANSWER_MAX = 1 << 20 };

/* ---- the requesting node ---- */

struct answers;

/* The pointers must remain valid until answers_free(). */
struct answers_cfg {
    const char *id; /* id of this examination, the same on all nodes */
    int nnodes;
    struct net_key_input key_in; /* answers_new() sets job_id */
    /* Called once for each node. data: the node's result, lent for the call. */
    void (*on_answer)(void *arg, int index, const void *data, size_t n);
    /* All nodes have sent their results and have read the acknowledgement; if this process exited
     * earlier, they would report a failure. A node that fails meanwhile delays this by at most 2 s.
     */
    void (*on_done)(void *arg);
    void *arg;
};

int answers_new(struct answers **ret, struct event_base *base, const struct answers_cfg *cfg,
                struct dd_err *err);
uint16_t answers_port(const struct answers *a);
/* Write the address to which nodes send results, "PORT/HOST,HOST…". hosts: names and addresses of
 * this node. -E2BIG with a message. */
int answers_place(const struct answers *a, const struct dd_strv *hosts, char *out, size_t size,
                  struct dd_err *err);
void answers_free(struct answers *a);

/* ---- the other nodes ---- */

struct answer {
    const char *id;
    int index;
    uint16_t port;
    char *const
        *hosts; /* names and addresses of the requesting node, all tried at once; NULL-terminated */
    struct net_key_input key_in;
    unsigned limit_ms;
};

/* Parse "PORT/HOST,HOST…" of the command line. Append to *hosts. -EINVAL; -ENOMEM. */
int answer_parse_place(const char *text, uint16_t *port, struct dd_strv *hosts, struct dd_err *err);
/* Send the result, and wait for the acknowledgement. -ETIMEDOUT: none was received within limit_ms,
 * or the connection was lost; any error with a message. */
int answer_give(const struct answer *a, const void *data, size_t n, struct dd_err *err);

#endif
