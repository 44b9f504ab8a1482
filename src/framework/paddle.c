/* PaddlePaddle: the variables that paddle.distributed.launch sets. On request only, since every
 * worker needs a port. Src: Paddle's launch/controllers/collective.py. */
#include "framework/rows.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>

static int numbers(struct dd_strv *env, const struct framework_input *in)
{
    const struct plan *p = in->plan;
    const int rank = p->first_rank + in->local_rank;
    const struct framework_number rows[] = {
        {"PADDLE_GLOBAL_RANK", rank},
        {"PADDLE_GLOBAL_SIZE", p->world_size},
        {"PADDLE_LOCAL_RANK", in->local_rank},
        {"PADDLE_LOCAL_SIZE", p->local_size},
        {"PADDLE_RANK_IN_NODE", in->local_rank},
        {"PADDLE_NNODES", p->nnodes},
        {"PADDLE_TRAINER_ID", rank},
        {"PADDLE_TRAINERS_NUM", p->world_size},
    };
    return framework_numbers(env, rows, sizeof(rows) / sizeof(rows[0]));
}

static int endpoints(struct dd_strv *env, const struct plan *p, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(FRAMEWORK_STRING_MAX -
                                                  sizeof("PADDLE_TRAINER_ENDPOINTS="));
    int rc = 0;
    for (size_t i = 0; i < p->endpoints.n && rc == 0; i++)
        rc = dd_buf_printf(&list, "%s%s", i > 0 ? "," : "", p->endpoints.v[i]);
    if (rc == -EMSGSIZE)
        return dd_err_set(
            err, -ENOTSUP,
            "PADDLE_TRAINER_ENDPOINTS of %d workers exceeds Linux's limit of %d bytes for a "
            "variable"
            "\n  tip: start fewer workers",
            p->world_size, FRAMEWORK_STRING_MAX);
    const char *text = rc == 0 ? dd_buf_str(&list) : NULL;
    return text == NULL ? -ENOMEM : dd_env_set(env, "PADDLE_TRAINER_ENDPOINTS", text);
}

/* All GPUs stay visible; FLAGS_selected_gpus selects the GPU of the worker. */
static int device(struct dd_strv *env, const struct framework_input *in)
{
    if (in->gpus == 0)
        return framework_default(env, "PADDLE_DISTRI_BACKEND", "gloo");
    return dd_env_setf(env, "FLAGS_selected_gpus", "%d", in->one_gpu ? 0 : in->local_rank);
}

int framework_paddle(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    const struct plan *p = in->plan;
    if ((in->frameworks & FRAMEWORK_PADDLE) == 0)
        return 0;
    if (p->endpoints.n != (size_t)p->world_size || p->coordinator == NULL)
        return dd_err_set(err, -ENOTSUP,
                          "Paddle needs %d reserved ports, one for each worker and one for "
                          "PADDLE_MASTER, but the nodes have reserved only %zu",
                          p->world_size + 1, p->endpoints.n + (p->coordinator != NULL));
    int rc = numbers(env, in);
    if (rc == 0)
        rc = endpoints(env, p, err);
    if (rc == 0)
        rc = dd_env_set(env, "PADDLE_CURRENT_ENDPOINT",
                        p->endpoints.v[p->first_rank + in->local_rank]);
    if (rc == 0)
        rc = dd_env_set(env, "PADDLE_MASTER", p->coordinator);
    return rc < 0 ? rc : device(env, in);
}
