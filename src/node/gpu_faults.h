/* Judges what NVML reports of a GPU: what makes it unusable, and what is only worth a warning.
 * Pure; node/nvml.c reads the facts. */
#ifndef DD_NODE_GPU_FAULTS_H
#define DD_NODE_GPU_FAULTS_H

#include "node/gpu_facts.h"
#include "node/health_page.h"

#include <stdbool.h>

enum { GPU_SENTENCE = 390 };

struct gpu_case {
    const struct gpu_facts *now;
    const struct health_gpu *before; /* the last check; NULL: this is the first */
    const struct health_xid *xid;    /* the last XID since the start; NULL: none */
    int most_links;                  /* active links of the GPU that has the most on this node */
};

/* Append each warning to the page. Return true, with the first fault as a sentence, if the GPU
 * cannot be used. */
bool gpu_faults_judge(const struct gpu_case *c, struct health_page *page,
                      char why[GPU_SENTENCE + 1]);
/* True if this XID reports failed hardware, not an error of a program. */
bool gpu_xid_is_hardware(uint64_t xid);
int gpu_active_links(const struct gpu_facts *f);
/* True if memory is held by a process that no longer exists: the driver may still be freeing it. */
bool gpu_faults_frees_memory(const struct gpu_facts *f);
/* True if `visible` selects this GPU. visible: CUDA_VISIBLE_DEVICES; NULL: not set. A list with MIG
 * devices selects all GPUs, because NVML does not list MIG devices. */
bool gpu_is_visible(const char *visible, const struct gpu_facts *f);
/* Store the facts with which the next check compares; links and used memory only the first time. */
void gpu_faults_note(struct health_gpu *to, const struct gpu_facts *f);

#endif
