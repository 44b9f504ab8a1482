/* A round machine, and its actions as text. */
#ifndef DD_TESTS_RDZV_BED_H
#define DD_TESTS_RDZV_BED_H

#include "rdzv/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct bed {
    struct rdzv *m;
    struct hostlist *nodes;
    uint64_t now;
    char log[4096]; /* actions since the last call, "plan0 plan1 " */
};

static inline void bed_make(struct bed *b, int nnodes, int max_restarts, const char *names)
{
    memset(b, 0, sizeof(*b));
    assert_int_equal(hostlist_parse(&b->nodes, names, NULL), 0);
    const struct rdzv_cfg cfg = {.min_nodes = nnodes,
                                 .max_nodes = nnodes,
                                 .max_restarts = max_restarts,
                                 .join_ns = 600,
                                 .rejoin_ns = 30,
                                 .master_port = 31000,
                                 .nodes = b->nodes};
    assert_int_equal(rdzv_new(&b->m, &cfg, 0), 0);
}

static inline void bed_free(struct bed *b)
{
    rdzv_free(b->m);
    hostlist_free(b->nodes);
}

static inline const char *actions(struct bed *b)
{
    struct rdzv_action a;
    b->log[0] = '\0';
    while (rdzv_next_action(b->m, &a)) {
        static const char *const names[] = {"refuse", "welcome", "plan",   "probe",  "begun",
                                            "commit", "round",   "stop",   "finish", "note",
                                            "drop",   "signal",  "exclude"};
        size_t len = strlen(b->log);
        (void)snprintf(b->log + len, sizeof(b->log) - len, "%s%s%d", len > 0 ? " " : "",
                       names[a.kind], a.id);
        if (a.kind == RDZV_SEND_FINISH && a.report)
            strcat(b->log, "!");
    }
    return b->log;
}

struct bed_node {
    int slots;
    const char *name, *addr;
};

static inline struct bed_node node(int slots, const char *name, const char *addr)
{
    return (struct bed_node){slots, name, addr};
}

static inline int join(struct bed *b, int id, int index, int nnodes, struct bed_node n)
{
    return rdzv_step(b->m,
                     &(struct rdzv_event){.kind = RDZV_JOIN,
                                          .id = id,
                                          .index = index,
                                          .nnodes = nnodes,
                                          .slots = n.slots,
                                          .name = n.name,
                                          .addr = n.addr},
                     b->now);
}

static inline int event(struct bed *b, enum rdzv_event_kind kind, int id, int local_rank, int code,
                        int sig)
{
    return rdzv_step(b->m,
                     &(struct rdzv_event){.kind = kind,
                                          .id = id,
                                          .round = rdzv_round(b->m),
                                          .local_rank = local_rank,
                                          .code = code,
                                          .signal = sig,
                                          .text = "because"},
                     b->now);
}

static inline void bed_elastic(struct bed *b, struct rdzv_cfg cfg)
{
    memset(b, 0, sizeof(*b));
    cfg.join_ns = 600;
    cfg.last_call_ns = 50;
    cfg.rejoin_ns = 30;
    cfg.master_port = 31000;
    assert_int_equal(rdzv_new(&b->m, &cfg, 0), 0);
}

static inline int pass(struct bed *b, uint64_t now)
{
    b->now = now;
    return rdzv_step(b->m, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1}, now);
}

#endif
