/* Messages between the agent, its ddrun-stage and the workers that wait for a copy: a packet is a
 * type and texts, each with a NUL at its end. Pure. */
#ifndef DD_STAGE_STAGE_MSG_H
#define DD_STAGE_STAGE_MSG_H

#include "base/buf.h"
#include "base/strv.h"

enum { STAGE_MSG_MAX = 128 << 10, STAGE_PROGRESS_MAX = 80 };

enum stage_msg_type {
    STAGE_MSG_SETUP = 'S',     /* to ddrun-stage, once: STAGE_SETUP_* */
    STAGE_MSG_PORT = 'P',      /* from ddrun-stage: its port for children; with STAGE_SETUP_READS
                                  also the interpreters that it will copy */
    STAGE_MSG_ALSO = 'L',      /* to ddrun-stage before ROUND: interpreters that the root copies */
    STAGE_MSG_ROUND = 'R',     /* to ddrun-stage: STAGE_ROUND_* */
    STAGE_MSG_STOP = 'X',      /* not sent */
    STAGE_MSG_READY = 'D',     /* from ddrun-stage, and on to each worker: STAGE_READY_*;
                                  descriptors of the namespaces that show the copy */
    STAGE_MSG_WITHOUT = 'U',   /* --compile-cache: from ddrun-stage: why this node gets no copy,
                                  although it forwards the chunks. To each worker: a directory;
                                  variables with values in it are removed */
    STAGE_MSG_FAILED = 'F',    /* from ddrun-stage: the reason */
    STAGE_MSG_WARNING = 'W',   /* from ddrun-stage: text */
    STAGE_MSG_COLLECT = 'C',   /* to the ddrun-stage of --collect, once: STAGE_COLLECT_* */
    STAGE_MSG_MISSING = 'M',   /* from ddrun-stage: a file that was not collected, and why */
    STAGE_MSG_COLLECTED = 'E', /* from ddrun-stage: all files are done; summary for the log */
    STAGE_MSG_CAME = 'N',      /* from ddrun-stage: "RULES DIRECTORY" of a node whose files are all
                                  done; RULES: set of the rules that match nothing there, 16 hex
                                  digits */
    STAGE_MSG_ALIVE = 'A',     /* from the ddrun-stage of --collect, at least every 5 s: it runs */
    STAGE_MSG_PROGRESS = 'B',  /* from the root of the tree, once a second until all nodes have
                                  the copy: "DONE ALL NODES SLOWEST", bytes that all nodes have,
                                  and of how many; nodes of the tree that need nothing more;
                                  rank of the slowest node, or -1. At the end: "" */
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
    STAGE_SETUP_MOST,  /* with CACHE: limit for the bytes of that directory */
    STAGE_SETUP_READS, /* "1": the sources are read on this node, unless another node has copies */
    STAGE_SETUP_DIR,   /* private directory for the copy; "": this node already has one */
    STAGE_SETUP_SPARE, /* directory to use if DIR has not enough space; "": none */
    STAGE_SETUP_SOURCES, /* this and all further texts: the directories to copy */
};

enum {
    STAGE_ROUND_KEY,      /* secret of the round */
    STAGE_ROUND_CHILDREN, /* number of nodes that will connect */
    STAGE_ROUND_BELOW,    /* number of nodes in the tree below this one */
    STAGE_ROUND_RANK,     /* node rank */
    STAGE_ROUND_PARENTS,  /* this and all further texts: the parent, its parent … and the root of
                             the tree, each as STAGE_PARENT_*; none: this node is the root */
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
    STAGE_COLLECT_BIND,      /* as in SETUP */
    STAGE_COLLECT_INSECURE,  /* as in SETUP */
    STAGE_COLLECT_KEY,       /* secret of the round */
    STAGE_COLLECT_ADDR,      /* address of the receiving node; "": this process receives */
    STAGE_COLLECT_PORT,      /* port of the receiving node */
    STAGE_COLLECT_PEER,      /* name of the receiving node */
    STAGE_COLLECT_LIMIT,     /* time to connect to the receiving node, in seconds */
    STAGE_COLLECT_FOLDER,    /* directory of this node in DIR */
    STAGE_COLLECT_DIRECTORY, /* working directory of the workers, absolute */
    STAGE_COLLECT_CACHE,     /* of --compile-cache: private directory of this node, or DIR if this
                                process receives; "": none */
    STAGE_COLLECT_KIND,      /* directory in DIR for this kind of processor */
    STAGE_COLLECT_MOST,      /* limit for the sum of the cache files that are received, in bytes */
    STAGE_COLLECT_CACHE_HOW, /* how the cache files are sent: enum compile_send_how */
    STAGE_COLLECT_CACHE_FAILED, /* when the first worker of this node has failed, in seconds of the
                                   wall clock; 0: none has */
    STAGE_COLLECT_RULES, /* this and all further texts: PATTERN, or DIR if this process receives */
};

enum {
    STAGE_READY_SUMMARY, /* text for the log; "": an existing copy is used */
    STAGE_READY_KEPT,    /* "1": the last descriptor locks a kept copy */
    STAGE_READY_PAIRS,   /* this and all further texts: source, copy, source, copy ... */
};

struct stage_msg {
    enum stage_msg_type type;
    struct dd_strv texts;
};

/* texts: NULL-terminated; NULL: none. */
int stage_msg_encode(struct dd_buf *out, enum stage_msg_type type, char *const *texts);
/* 0, -EPROTO or -ENOMEM. The caller frees ret->texts, also after a failure. */
int stage_msg_decode(struct stage_msg *ret, const void *p, size_t n);

static inline void dd_auto_stage_msg(struct stage_msg *m)
{
    dd_strv_done(&m->texts);
}

#endif
