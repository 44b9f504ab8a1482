/* History of the rounds of this node. If the daemon is lost, JOIN carries the history to its
 * successor. */
#ifndef DD_AGENT_ROUND_HISTORY_H
#define DD_AGENT_ROUND_HISTORY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "rdzv/members.h"
#include "rdzv/msg.h"
#include "rdzv/restart_ages.h"

#include <stdint.h>

/* Written by round_history.c only. */
struct round_history {
    char *members; /* members of the last round whose plan this node has received, as text
                      (rdzv/members.h); NULL: none */
    struct rdzv_members last; /* members of the last round that this node knows of */
    char *committed; /* members of the last round that all its nodes have started, as text; NULL:
                        none */
    struct dd_strv addrs; /* addresses of the first nodes of `last`, in node rank order */
    uint64_t ages_ms[RESTART_AGES_MAX]; /* ages of the last restarts, at the time ages_at_ns */
    int nages;
    uint64_t ages_at_ns;
    char *charges; /* charges of nodes, at the time charges_at_ns (rdzv/charges.h); NULL: none */
    uint64_t charges_at_ns;
};

/* clang-format off */
#define ROUND_HISTORY_NONE {.last = RDZV_MEMBERS_NONE}
/* clang-format on */

/* Record a plan, of nnodes nodes, that the round has taken. */
int round_history_record(struct round_history *h, const struct msg_plan *plan, int nnodes,
                         struct dd_err *err);
/* Before the first round: add charges of the last run of this job, recorded age_ms ago. */
void round_history_add_charges(struct round_history *h, const char *text, uint64_t age_ms);
/* Record a round in which this node is a spare. */
int round_history_observe(struct round_history *h, const struct msg_round_members *round,
                          struct dd_err *err);
/* Call when all nodes have started the last round. */
void round_history_commit(struct round_history *h);
/* Write the ages of restarts, for JOIN. */
void round_history_write_ages(const struct round_history *h, struct dd_buf *out);
/* Write the charges of nodes, for JOIN. */
void round_history_write_charges(const struct round_history *h, struct dd_buf *out);
void round_history_done(struct round_history *h);

#endif
