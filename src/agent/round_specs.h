/* Command, environment, CPUs and stdin of each worker of a round. */
#ifndef DD_AGENT_ROUND_SPECS_H
#define DD_AGENT_ROUND_SPECS_H

#include "agent/round.h"
#include "node/cpu.h"
#include "node/numa.h"

/* Binding of the workers to CPUs. */
struct round_specs_binding {
    bool cpus;
    enum node_numa_mode numa; /* takes precedence over cpus */
};

struct round_specs {
    struct worker_spec *v; /* one per local rank */
    int n;
    struct node_cpus cpus;
    cpu_set_t **shares;         /* one per worker, NULL: unbound */
    struct node_memory *memory; /* one per worker, with --numa-binding */
};

/* *ret is zeroed. The caller frees its content, also after a failure. */
int round_specs_make(struct round_specs *ret, const struct round *r, const struct round_link *link,
                     struct dd_err *err);
void round_specs_done(struct round_specs *l);

#endif
