/* Where the nodes' looks come together when what they print gets lost on its way: the asking node
 * listens, each other node proves that it has the job's key and gives what it has seen. */
#ifndef DD_DOCTOR_ANSWERS_H
#define DD_DOCTOR_ANSWERS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "net/key.h"

#include <stdint.h>

struct event_base;

enum { ANSWER_MAX = 1 << 20 };

/* ---- the asking node ---- */

struct answers;

/* All borrowed. */
struct answers_cfg {
    const char *id; /* of this look, the same on all nodes */
    int nnodes;
    struct net_key_input key_in;                                         /* job_id is filled in */
    void (*on_answer)(void *arg, int index, const void *data, size_t n); /* each node once */
    /* All have answered and have read that their answer came: ending earlier would lose that word,
     * and they would report a failure. A node that died meanwhile is waited for, but for 2 s at
     * most. */
    void (*on_done)(void *arg);
    void *arg;
};

int answers_new(struct answers **ret, struct event_base *base, const struct answers_cfg *cfg,
                struct dd_err *err);
uint16_t answers_port(const struct answers *a);
/* The place to answer to, "PORT/HOST,HOST…", for this node by these names. -E2BIG with a sentence.
 */
int answers_place(const struct answers *a, const struct dd_strv *hosts, char *out, size_t size,
                  struct dd_err *err);
void answers_free(struct answers *a);

/* ---- the others ---- */

struct answer {
    const char *id;
    int index;
    uint16_t port;
    char *const *hosts; /* names and addresses of the asking node, tried all at once; NULL-ended */
    struct net_key_input key_in;
    unsigned limit_ms;
};

/* "PORT/HOST,HOST…" of a command line. -EINVAL; -ENOMEM. Appends to *hosts. */
int answer_parse_place(const char *text, uint16_t *port, struct dd_strv *hosts, struct dd_err *err);
/* Until it has been taken. -ETIMEDOUT with a sentence. */
int answer_give(const struct answer *a, const void *data, size_t n, struct dd_err *err);

#endif
