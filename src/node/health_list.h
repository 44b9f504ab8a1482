/* The checks that --health selects. */
#ifndef DD_NODE_HEALTH_LIST_H
#define DD_NODE_HEALTH_LIST_H

#include <stdint.h>

enum node_health_bit {
    NODE_HEALTH_GPU = 1,  /* as many GPUs as the job uses here respond, and have no fault */
    NODE_HEALTH_IB = 2,   /* InfiniBand ports that were active at the start are still active */
    NODE_HEALTH_SHM = 4,  /* /dev/shm has free space */
    NODE_HEALTH_DISK = 8, /* temporary files can be written */
};

enum { NODE_HEALTH_TARGETS = 8, NODE_HEALTH_PATH = 1024 };

/* A check with an argument: storage=PATH, memory=SIZE, disk=PATH:SIZE. */
struct node_health_target {
    int row; /* index of the check in the table of health.c */
    uint64_t bytes;
    char path[NODE_HEALTH_PATH];
};

struct node_health_list {
    int checks; /* bits of enum node_health_bit */
    int n;
    struct node_health_target targets[NODE_HEALTH_TARGETS];
};

/* The pointers must remain valid until node_health_free(). */
struct node_health_cfg {
    const struct node_health_list *list;
    int gpus;            /* number of GPUs that the job uses on this node */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *nvml;    /* library of NVML; NULL: libnvidia-ml.so.1 */
    unsigned usage_ms;   /* interval of reading the usage of the GPUs; 0: never */
    const char *tmpdir;
    const char *root; /* "", or a directory with sys and dev for tests */
};

#endif
