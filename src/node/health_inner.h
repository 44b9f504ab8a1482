/* Private to the health checks of src/node: the state that they share. */
#ifndef DD_NODE_HEALTH_INNER_H
#define DD_NODE_HEALTH_INNER_H

#include "base/err.h"
#include "base/strv.h"
#include "node/health_list.h"
#include "node/health_page.h"

#include <stdbool.h>

struct node_health {
    struct node_health_cfg cfg;
    const char *driver;   /* directory of the GPU driver */
    struct dd_strv gpus;  /* PCI devices of the driver at the start, "0000:17:00.0" */
    struct dd_strv ports; /* InfiniBand ports that were active at the start, "mlx5_0/ports/1" */
    struct health_page *page;
};

/* Return 0 if the check passes, or 1 with the reason in *why. t: argument of the check; NULL: none.
 */
typedef int health_check_f(const struct node_health *h, const struct node_health_target *t,
                           struct dd_err *why);
typedef int health_note_f(struct node_health *h); /* 0 or -ENOMEM */
typedef bool health_idle_f(const struct node_health *h);

health_note_f health_gpu_note, health_ib_note;
health_idle_f health_gpu_idle, health_ib_idle;
health_check_f health_gpu_check, health_ib_check, health_shm_check, health_tmpdir_check;
health_check_f health_storage_check, health_memory_check, health_disk_check;

/* Implements node_health_watch(). */
void health_gpu_watch(const struct node_health *h);

/* Read the start of root/dir/name/file; false: it cannot be read. */
bool health_read(const struct node_health *h, const char *dir, const char *name, const char *file,
                 void *to, size_t n);
/* Append the names in root/dir that do not begin with a dot, at most 256. 0 or -ENOMEM. */
int health_list(const struct node_health *h, const char *dir, struct dd_strv *out);

#endif
