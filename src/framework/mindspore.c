/* MindSpore's dynamic cluster, on request: every rank is a worker. The scheduler is a second
 * process of the same program beside rank 0, on the port that ddrun holds there. Src: MindSpore's
 * page on its dynamic cluster. */
#include "framework/rows.h"

#include <errno.h>
#include <string.h>

/* The scheduler exits after all workers, so wait for it after a success. */
const char framework_mindspore_wrap[] =
    "0:/bin/sh -c 'MS_ROLE=MS_SCHED \"$@\" & s=$!; \"$@\" && wait $s' sh";

int framework_mindspore(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    const struct plan *p = in->plan;
    if ((in->frameworks & FRAMEWORK_MINDSPORE) == 0)
        return 0;
    const char *port = p->coordinator != NULL ? strrchr(p->coordinator, ':') : NULL;
    if (port == NULL)
        return dd_err_set(err, -ENOTSUP,
                          "the first node has reserved no port for MindSpore's scheduler");
    const char *host = p->coordinator;
    size_t len = (size_t)(port - host);
    if (host[0] == '[') { /* IPv6 in brackets */
        host++;
        len -= 2;
    }
    int rc = dd_env_setf(env, "MS_SCHED_HOST", "%.*s", (int)len, host);
    if (rc == 0)
        rc = dd_env_set(env, "MS_SCHED_PORT", port + 1);
    if (rc == 0)
        rc = dd_env_set(env, "MS_ROLE", "MS_WORKER");
    if (rc == 0)
        rc = dd_env_setf(env, "MS_WORKER_NUM", "%d", p->world_size);
    return rc < 0 ? rc : dd_env_setf(env, "MS_NODE_ID", "%d", p->first_rank + in->local_rank);
}
