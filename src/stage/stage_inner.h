/* State and functions that the files of ddrun-stage share. A process serves one node for one
 * round. */
#ifndef DD_STAGE_STAGE_INNER_H
#define DD_STAGE_STAGE_INNER_H

#include "base/scratch.h"
#include "net/link.h"
#include "stage/stage_keep.h"
#include "stage/stage_ledger.h"
#include "stage/stage_msg.h"
#include "stage/stage_pool.h"
#include "stage/stage_reader.h"
#include "stage/stage_tree.h"

#include <stdbool.h>

struct event;
struct event_base;
struct handshake_pool;
struct serve;
struct stage_child;

/* A connection from another node. The first ACK assigns it to a child: before that, the peer may
 * abandon the connection. */
struct stage_caller {
    struct serve *serve;
    struct link *link; /* NULL: this entry is unused */
    struct stage_child *child;
};

/* A node that receives the copy from this one: a child in the tree, or a node further below that
 * has lost its parent. After the loss of its link, chunks are kept for it for some time. */
struct stage_child {
    struct serve *serve;
    int rank;     /* node rank; -1: the child has not connected yet */
    unsigned bit; /* bit of the child in struct stage_chunk */
    bool waits;  /* the child has not reported whether it needs the chunks; counts only if `asks` */
    bool needed; /* the subtree of the child still needs something from this node */
    struct link *link;
    bool head_sent, end_sent, has_end;
    struct stage_tally tally; /* tally of the child's subtree */
    struct event *given_up;   /* timer: ends the keeping of chunks for a child without a link */
};

enum { STAGE_CHILDREN = 16, STAGE_CALLERS = 2 * STAGE_CHILDREN };

struct serve {
    struct event_base *base;
    int control; /* socket of the agent */
    struct event *control_event, *wake_event, *progress_event;
    struct stage_msg setup, round; /* round: no texts until it is received */
    struct dd_strv also;           /* additional interpreters to copy */
    struct stage_sources sources;  /* from setup and `also`; set once `round` is received */
    int wake_fd;
    struct stage_pool *pool;

    /* stage_net.c */
    int listen_fd;
    struct handshake_pool *handshakes;
    struct net_key_input key_in;
    struct net_key key;
    struct link_find *find;
    struct event *connect_event; /* time limit of find */
    uint64_t connect_end_ns;     /* end of the time for all attempts */
    int nparents, at_parent;     /* number of STAGE_ROUND_PARENTS; index of the one in use */
    bool reconnected;
    uint32_t lost_received; /* chunks received when the last link was lost */
    char lost_why[400];     /* why the link to a parent was lost; "": none was */
    struct link *parent;
    struct stage_caller callers[STAGE_CALLERS];
    struct stage_child children[STAGE_CHILDREN];
    int nchildren;

    /* stage_flow.c */
    struct stage_reader *reader; /* NULL: the chunks come from the parent */
    struct dd_buf head, end;     /* frames HEAD and END; empty: not known yet */
    uint32_t total;              /* chunks, once `end` is known */
    struct stage_ledger ledger;
    struct stage_chunks live;        /* still needed by this node or a child; in order of phases */
    uint32_t worked;                 /* chunks that the pool has finished */
    uint32_t empty;                  /* chunks without contents: their files have vanished */
    struct dd_scratch dir;           /* the directory with enough space */
    struct dd_scratch kept;          /* kept copy: of an earlier job, or made in this round */
    char keep_name[STAGE_KEEP_NAME]; /* "": keep nothing */
    bool asks;     /* HEAD has a digest: nodes report whether they have a kept copy */
    bool needs;    /* a node of the subtree needs the chunks */
    bool answered; /* `needs` is final: reported to the parent, or the reader was started */
    struct stage_unpack_cfg unpack;
    bool mounts; /* the copy will be mounted at the original path */
    bool ready;  /* the copy is complete, or this node gets none; reported to the agent */
    uint64_t begun_ns;
    uint64_t bytes, files;
    uint64_t spread; /* bytes of the chunks that this node and its subtree need no more */

    /* stage_progress.c */
    uint32_t below;          /* nodes below this one in the tree */
    struct stage_tally told; /* last tally that was sent to the parent */
};

/* stage_tell.c */
void serve_send(const struct serve *s, enum stage_msg_type type, const char *text);
void serve_send_up(const struct serve *s, const struct stage_frame *f); /* sends to the parent */
/* Report `why` to the agent, and exit. */
_Noreturn void serve_fail(const struct serve *s, const char *why);

/* stage_net.c */
int serve_listen(struct serve *s, uint16_t *ret_port, struct dd_err *err);
/* Take the key of the round, accept the children, and connect to the parent. */
int serve_link_up(struct serve *s, int children, struct dd_err *err);
void serve_ack(const struct serve *s, uint32_t seq);
/* Send a frame to a child. False: the link is lost, which is reported later. */
bool serve_send_frame(const struct stage_child *c, const struct dd_buf *frame);
/* Leave the parent, whose link is lost or which cannot send the missing chunks. Try to connect to
 * it again, then to the next ones. */
void serve_leave_parent(struct serve *s, const char *why);
const char *serve_parent_name(const struct serve *s);
void serve_close_links(struct serve *s);

/* stage_flow.c */
int serve_begin(struct serve *s, struct dd_err *err);
void serve_take_frame(struct serve *s, const struct frame *f); /* takes a frame of the parent */
/* Send again the chunks that a child with a new link may lack. */
void serve_renew_child(struct serve *s, const struct stage_child *child);
void serve_take_ack(struct serve *s, struct stage_child *child, uint32_t seq);
void serve_pump(struct serve *s);    /* send and release chunks, and finish, as far as possible */
void serve_on_wake(struct serve *s); /* called when the pool or the reader has made progress */

/* stage_progress.c */
void serve_take_tally(struct serve *s, struct stage_child *child, const struct stage_tally *t);
/* Report the progress to the parent, if it has changed, or, on the root, to the agent. */
void serve_tell_progress(struct serve *s);
/* Report the end of the progress: all nodes of the subtree have the copy. */
void serve_end_progress(struct serve *s);

/* stage_place.c */
/* True if this node can use and leave kept copies. */
bool serve_can_keep(const struct serve *s);
/* Find a kept copy with this digest of the listing; if there is none, the copy will be kept by that
 * name. */
bool serve_find_kept(struct serve *s, const unsigned char digest[STAGE_DIGEST]);
void serve_prune_kept(const struct serve *s);
int serve_choose_dir(struct serve *s, uint64_t bytes, uint64_t entries, struct dd_err *err);
bool serve_can_mount(const struct serve *s, struct dd_err *err);
bool serve_has_image(const struct serve *s);
/* Mount the copies, if that is possible here, and send READY. Images are mounted by
 * "ddrun-stage mount" (stage_mount.c), a process that outlasts the round. */
int serve_show(struct serve *s, struct dd_err *err);

#endif
