/* Facts that NVML reports of a GPU: node/nvml.c reads them, node/gpu_faults.c judges them. */
#ifndef DD_NODE_GPU_FACTS_H
#define DD_NODE_GPU_FACTS_H

#include <stdbool.h>
#include <stdint.h>

enum { GPU_LINKS_MAX = 36, GPU_PROCESSES_MAX = 16 };

/* Bits of the facts that NVML has reported; all other facts are 0. */
enum gpu_known {
    GPU_KNOWS_RECOVERY = 1,
    GPU_KNOWS_ECC = 2,
    GPU_KNOWS_ROWS = 4,
    GPU_KNOWS_LINKS = 8,
    GPU_KNOWS_MEMORY = 16,
};

struct gpu_process {
    unsigned pid;
    uint64_t bytes; /* GPU memory that the process holds; 0: unknown */
    bool alive;
};

struct gpu_facts {
    unsigned index;    /* number of the GPU in NVML and nvidia-smi */
    char bus[32];      /* "00000000:17:00.0" */
    char uuid[96];     /* "GPU-…"; "": unknown */
    unsigned lost;     /* return code of NVML if the GPU does not respond; 0: it responds */
    unsigned known;    /* bits of enum gpu_known */
    unsigned recovery; /* nvmlDeviceGpuRecoveryAction_t; 0: no action is needed */
    uint64_t ecc_uncorrected, ecc_corrected; /* errors since the driver was loaded */
    unsigned rows_pending, rows_failed; /* 1: remapping of a memory row is pending, has failed */
    unsigned pages_pending;             /* 1: retirement of memory pages is pending */
    uint64_t links;                     /* bit n: link n exists */
    uint64_t links_up;                  /* bit n: link n is active */
    uint64_t link_errors;               /* errors of all active links since the driver was loaded */
    uint64_t throttle;                  /* reasons for low clocks: bits NVML_CLOCKS_* */
    uint64_t memory_used, memory_total; /* bytes */
    int nprocesses;
    struct gpu_process processes[GPU_PROCESSES_MAX];
};

/* Numbers of NVML. Src: docs.nvidia.com/deploy/nvml-api. */
enum {
    NVML_DRIVER_NOT_LOADED = 9, /* return codes */
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
};
enum { /* reasons for low clocks */
       NVML_CLOCKS_IDLE = 0x1,
       NVML_CLOCKS_HW_SLOWDOWN = 0x8,
       NVML_CLOCKS_SW_THERMAL = 0x20,
       NVML_CLOCKS_HW_THERMAL = 0x40,
       NVML_CLOCKS_POWER_BRAKE = 0x80,
};

#endif
