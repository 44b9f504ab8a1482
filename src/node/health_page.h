/* Results of the checks in a child process for its parent, in memory that both share: the child may
 * hang or be killed at any time. Texts always end within their array, because the child never
 * writes its last byte. */
#ifndef DD_NODE_HEALTH_PAGE_H
#define DD_NODE_HEALTH_PAGE_H

#include "node/gpu_usage.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HEALTH_WARNINGS_MAX = 4000,
    HEALTH_SENTENCE_MAX = 400,
    HEALTH_GPUS_MAX = 64,
    HEALTH_PORTS_MAX = 64,
    HEALTH_PORT_COUNTERS = 3,
};

/* A GPU at the last check. */
struct health_gpu {
    bool seen;
    char bus[32];
    uint64_t links_up, memory_used; /* at the first check */
    uint64_t link_errors, ecc_corrected;
};

/* The last XID of a GPU; written by the process that waits for them. */
struct health_xid {
    char bus[32];
    uint64_t xid; /* 0: none */
    uint64_t n;   /* number since the start */
};

/* Counters of an InfiniBand port at the last check. */
struct health_port {
    bool seen;
    uint64_t counters[HEALTH_PORT_COUNTERS];
};

struct health_page {
    char check[HEALTH_SENTENCE_MAX + 1];    /* name of the check that runs, as in --health */
    char doing[HEALTH_SENTENCE_MAX + 1];    /* its current operation, reported if it hangs */
    char note[HEALTH_SENTENCE_MAX + 1];     /* why a check was not made; for debugging */
    char warnings[HEALTH_WARNINGS_MAX + 1]; /* sentences, one a line */
    struct health_gpu gpus[HEALTH_GPUS_MAX];
    struct health_xid xids[HEALTH_GPUS_MAX];
    struct gpu_usage usage[GPU_USAGE_MAX]; /* last reading; the child may be updating it */
    int nusage;
    uint64_t readings;
    struct health_port ports[HEALTH_PORTS_MAX]; /* in the order of node/ib_ports.h */
};

/* Return a page that children share, or NULL. */
struct health_page *health_page_new(void);
void health_page_free(struct health_page *p); /* NULL is allowed */
void health_page_begin(struct health_page *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* sets doing */
void health_page_note(struct health_page *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Append a sentence; drop it if the page is full. */
void health_page_warn(struct health_page *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
