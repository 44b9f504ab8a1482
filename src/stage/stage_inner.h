/* The parts of ddrun-stage on one node in one round. */
#ifndef DD_STAGE_STAGE_INNER_H
#define DD_STAGE_STAGE_INNER_H

#include "base/scratch.h"
#include "net/link.h"
#include "stage/stage_msg.h"
#include "stage/stage_pool.h"
#include "stage/stage_reader.h"
#include "stage/stage_tree.h"

#include <stdbool.h>

struct event;
struct event_base;
struct handshake_pool;
struct serve;

/* A connection of another node. It counts as a child once it has sent its first ACK: an attempt to
 * connect may end without use. */
struct stage_child {
    struct serve *serve;
    struct link *link; /* NULL: this place is free */
    int number;        /* bit in struct stage_chunk; -1: not yet a child */
    bool head_sent, end_sent;
};

enum { STAGE_CALLERS = STAGE_FANOUT * 4, STAGE_ACK_HELLO = -1 };

struct serve {
    struct event_base *base;
    int control; /* socket of the agent */
    struct event *control_event, *wake_event, *late_event;
    struct stage_msg setup, round; /* round: without texts before it has come */
    int wake_fd;
    struct stage_pool *pool;

    /* stage_net.c */
    int listen_fd;
    struct handshake_pool *handshakes;
    struct net_key_input key_in;
    struct net_key key;
    struct link_find *find;
    struct event *connect_event; /* limit of find */
    struct link *parent;
    struct stage_child callers[STAGE_CALLERS];
    int expected;      /* children of this node */
    unsigned children; /* bits of those that have come */

    /* stage_flow.c */
    struct stage_reader *reader; /* NULL: the chunks come from the parent */
    struct dd_buf head, end;     /* frames; empty: not known yet */
    uint32_t total;              /* chunks, once `end` is known */
    uint32_t received;           /* chunks that have come or were read */
    uint32_t released;           /* of those, chunks that nobody needs any more */
    struct stage_chunks live;    /* that this node or a child still needs, phase by phase */
    uint32_t worked;             /* chunks that the pool has finished */
    unsigned char *digests;      /* [digests_cap][STAGE_DIGEST] */
    uint32_t digests_cap;
    struct dd_scratch dir; /* that has enough space */
    struct stage_unpack_cfg unpack;
    bool mounts;        /* the copy will be mounted at the original path */
    bool ready;         /* the agent has been told that the copy is complete */
    char late_why[300]; /* why a link was lost */
    uint64_t begun_ns;
    uint64_t bytes, files;
};

/* stage_tell.c */
void serve_send(const struct serve *s, enum stage_msg_type type, const char *text);
/* Report and exit. */
_Noreturn void serve_fail(const struct serve *s, const char *why);
/* A link was lost. Another node may have failed and reports why; this one reports only if the round
 * does not end soon. */
void serve_lost(struct serve *s, const char *why);

/* stage_net.c */
int serve_listen(struct serve *s, uint16_t *ret_port, struct dd_err *err);
/* Take the key of the round, accept the children, and connect to the parent. */
int serve_link_up(struct serve *s, struct dd_err *err);
void serve_ack(const struct serve *s, uint32_t seq);
bool serve_send_frame(struct stage_child *c, const struct dd_buf *frame);
void serve_close_links(struct serve *s);

/* stage_flow.c */
int serve_begin(struct serve *s, struct dd_err *err);
void serve_take_frame(struct serve *s, const struct frame *f); /* of the parent */
void serve_take_ack(struct serve *s, int number, uint32_t seq);
void serve_pump(struct serve *s);    /* send, release and finish what can be */
void serve_on_wake(struct serve *s); /* pool or reader have something new */

/* stage_place.c */
int serve_choose_dir(struct serve *s, uint64_t bytes, uint64_t entries, struct dd_err *err);
bool serve_can_mount(const struct serve *s, struct dd_err *err);
/* Mount the copies, if that is possible here, and send READY. */
int serve_show(struct serve *s, struct dd_err *err);

#endif
