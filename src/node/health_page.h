/* Results of the checks in a child process for its parent, in memory that both share: the child may
 * hang or be killed at any time. Texts always end within their array, because the child never
 * writes the last byte of an array. */
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
    bool seen; /* the entry is used */
    char bus[32];
    uint64_t links_up, memory_used; /* bits and bytes at the first check */
    uint64_t link_errors, ecc_corrected;
};

/* The last XID of a GPU, or the last one that reports failed hardware; written by nvml_watch(). */
struct health_xid {
    char bus[32];
    uint64_t xid; /* 0: none */
    uint64_t n;   /* number of XIDs since the start */
};

/* Counters of an InfiniBand port at the last check. */
struct health_port {
    bool seen;
    uint64_t counters[HEALTH_PORT_COUNTERS];
};

struct health_page {
    char check[HEALTH_SENTENCE_MAX + 1]; /* name of the check that runs, as in --health */
    char doing[HEALTH_SENTENCE_MAX + 1]; /* object that the check examines, in case it hangs */
    char note[HEALTH_SENTENCE_MAX + 1];  /* why a part of a check was skipped, for the debug log */
    char warnings[HEALTH_WARNINGS_MAX + 1]; /* sentences, one a line */
    struct health_gpu gpus[HEALTH_GPUS_MAX];
    struct health_xid xids[HEALTH_GPUS_MAX];
    struct gpu_usage usage[GPU_USAGE_MAX];      /* last reading; the child may be updating it */
    int nusage;                                 /* entries of usage */
    uint64_t readings;                          /* number of readings of usage */
    struct health_port ports[HEALTH_PORTS_MAX]; /* in the order of `ports` in struct node_health */
};

/* Return a page that children share; NULL: out of memory. */
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
