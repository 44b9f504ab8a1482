/* MindSpore's dynamic cluster: every rank is a worker, and beside rank 0 runs one more process of
 * the same program, the scheduler, on the port that is held there. On request only. Src:
 * MindSpore's page on its dynamic cluster. */
#include "framework/rows.h"

#include <errno.h>
#include <string.h>

/* The scheduler ends by itself when all workers have, so it is waited for after a success. */
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
    if (host[0] == '[') { /* IPv6 */
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
