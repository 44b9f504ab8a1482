/* Messages between the agent, its ddrun-stage and the workers that wait for a copy: a packet is a
 * type and texts, each with a NUL at its end. Pure. */
#ifndef DD_STAGE_STAGE_MSG_H
#define DD_STAGE_STAGE_MSG_H

#include "base/buf.h"
#include "base/strv.h"

enum { STAGE_MSG_MAX = 128 << 10, STAGE_PROGRESS_MAX = 80 };

enum stage_msg_type {
    STAGE_MSG_SETUP = 'S',     /* to ddrun-stage, once: STAGE_SETUP_* */
    STAGE_MSG_PORT = 'P',      /* from it: the port on which it listens for children; and, with
                                  STAGE_SETUP_READS, the interpreters that it will copy, too */
    STAGE_MSG_ALSO = 'L',      /* to it, before ROUND: the interpreters that the root will copy */
    STAGE_MSG_ROUND = 'R',     /* to it: STAGE_ROUND_* */
    STAGE_MSG_STOP = 'X',      /* to it: the round is over */
    STAGE_MSG_READY = 'D',     /* from it, and on to each worker: STAGE_READY_*; descriptors of the
                                  namespaces that show the copy */
    STAGE_MSG_WITHOUT = 'U',   /* --compile-cache; from it: why this node gets no copy, although it
                                  forwards it. To each worker: a directory; the variables whose
                                  values lie there are removed */
    STAGE_MSG_FAILED = 'F',    /* from it: the reason */
    STAGE_MSG_WARNING = 'W',   /* from it: text */
    STAGE_MSG_COLLECT = 'C',   /* to the ddrun-stage of --collect, once: STAGE_COLLECT_* */
    STAGE_MSG_MISSING = 'M',   /* from it: a file that was not collected, and why */
    STAGE_MSG_COLLECTED = 'E', /* from it: all files are done; summary for the log */
    STAGE_MSG_CAME = 'N',      /* from it: directory of a node whose files are all done */
    STAGE_MSG_ALIVE = 'A',     /* from it: progress */
    STAGE_MSG_PROGRESS = 'B',  /* from the root of the tree, once a second until all nodes have the
                                  copy: "DONE ALL NODES SLOWEST", bytes that all nodes have, and of
                                  how many; nodes of the tree that need nothing more; rank of the
                                  slowest node, or -1. At the end: "" */
};

enum {
    STAGE_SETUP_JOB,
    STAGE_SETUP_NODE,
    STAGE_SETUP_LISTEN,   /* address; "": all */
    STAGE_SETUP_BIND,     /* source address; "": any */
    STAGE_SETUP_INSECURE, /* "1": without TLS */
    STAGE_SETUP_MOUNT,    /* "1": try to mount the copy */
    STAGE_SETUP_KEEP,     /* "1": use kept copies, and keep the new one */
    STAGE_SETUP_CACHE, /* "": --stage; else --compile-cache: name of the directory in the source for
                          this kind of processor */
    STAGE_SETUP_MOST,  /* with CACHE: bytes that it may have */
    STAGE_SETUP_READS, /* "1": the sources are read on this node, unless another one has copies */
    STAGE_SETUP_DIR,   /* private directory for the copy */
    STAGE_SETUP_SPARE, /* another one, if there is not enough space in the first; "" */
    STAGE_SETUP_SOURCES, /* this and all further texts: the directories to copy */
};

enum {
    STAGE_ROUND_KEY,      /* secret of the round */
    STAGE_ROUND_CHILDREN, /* number of nodes that will connect */
    STAGE_ROUND_BELOW,    /* number of nodes in the tree below this one */
    STAGE_ROUND_RANK,     /* node rank */
    STAGE_ROUND_PARENTS,  /* this and all further texts: the parent, its parent … and the first
                             node, each as STAGE_PARENT_*; none: this node reads the sources */
};

enum {
    STAGE_PARENT_ADDR,
    STAGE_PARENT_PORT,
    STAGE_PARENT_NAME,
    STAGE_PARENT_TEXTS,
};

enum {
    STAGE_COLLECT_JOB,
    STAGE_COLLECT_NODE,
    STAGE_COLLECT_LISTEN,    /* as in SETUP */
    STAGE_COLLECT_BIND,      /* the same */
    STAGE_COLLECT_INSECURE,  /* the same */
    STAGE_COLLECT_KEY,       /* secret of the round */
    STAGE_COLLECT_ADDR,      /* address of the receiving node; "": this process receives */
    STAGE_COLLECT_PORT,      /* its port */
    STAGE_COLLECT_PEER,      /* its name */
    STAGE_COLLECT_FOLDER,    /* directory of this node in DIR */
    STAGE_COLLECT_DIRECTORY, /* of the workers, absolute */
    STAGE_COLLECT_CACHE,     /* of --compile-cache: private directory of this node, or DIR if this
                                process receives; "": none */
    STAGE_COLLECT_KIND,      /* directory in DIR for this kind of processor */
    STAGE_COLLECT_MOST,      /* bytes that may come */
    STAGE_COLLECT_CACHE_HOW, /* how its files are sent: enum compile_send_how */
    STAGE_COLLECT_CACHE_FAILED, /* when the first worker of this node has failed, in seconds of the
                                   wall clock; 0: none has */
    STAGE_COLLECT_RULES,        /* this and all further texts: PATTERN, or DIR if it receives */
};

enum {
    STAGE_READY_SUMMARY, /* for the log; "": the copy was there */
    STAGE_READY_KEPT,    /* "1": the last descriptor locks a kept copy */
    STAGE_READY_PAIRS,   /* this and all further texts: source, copy, source, copy ... */
};

struct stage_msg {
    enum stage_msg_type type;
    struct dd_strv texts;
};

/* texts: NULL-terminated; NULL: none. */
int stage_msg_encode(struct dd_buf *out, enum stage_msg_type type, char *const *texts);
/* -EPROTO, -ENOMEM. The caller frees ret->texts, also after a failure. */
int stage_msg_decode(struct stage_msg *ret, const void *p, size_t n);

static inline void dd_auto_stage_msg(struct stage_msg *m)
{
    dd_strv_done(&m->texts);
}

#endif
