/* Reads the state of NVIDIA GPUs through NVML, which is loaded at run time. NVML may hang on a
 * failed GPU: call these functions in a child that can be killed. */
#ifndef DD_NODE_NVML_H
#define DD_NODE_NVML_H

#include "base/err.h"
#include "node/gpu_facts.h"
#include "node/gpu_usage.h"
#include "node/health_page.h"

struct nvml;

/* library: a path or soname; NULL: libnvidia-ml.so.1. -ENOENT: the library or the driver is not
 * loaded or too old, so there is nothing to check; -EIO: the driver does not work; -ENOMEM. err has
 * the reason. */
int nvml_open(struct nvml **ret, const char *library, struct dd_err *err);
void nvml_close(struct nvml *n); /* NULL is allowed */

int nvml_count(const struct nvml *n);
/* Read the facts of the GPU at this position, from 0. root: "", or a directory with proc for tests.
 * False if the GPU is not accessible to this process. */
bool nvml_read(const struct nvml *n, int position, const char *root, struct gpu_facts *ret);

/* Read the usage of the GPU at this position. False if it does not respond, or is not accessible.
 */
bool nvml_read_usage(const struct nvml *n, int position, struct gpu_usage *ret);

/* Wait for XIDs, and store each in page->xids, until the process is killed. Returns only if this is
 * not possible. Each time that no XID comes for usage_ms, store the usage of all GPUs; 0: never. */
void nvml_watch(const struct nvml *n, struct health_page *page, unsigned usage_ms);

#endif
