/* TensorFlow: TF_CONFIG, with the whole cluster and this worker's task. On request only: a program
 * that finds TF_CONFIG starts a server and waits for the other tasks. Src: TensorFlow 2.21,
 * measured. */
#include "framework/rows.h"
#include "framework/tf_roles.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>

static const struct tf_roles all_workers = {.n = 1, .v = {{.type = TF_WORKER, .count = TF_REST}}};

/* Append {"worker": ["10.0.0.1:5", ...], ...}. The evaluator is not part of the cluster. */
static int put_cluster(struct dd_buf *out, const struct plan *p, const struct tf_roles *r)
{
    int rank = 0;
    int rc = dd_buf_puts(out, "{");
    for (int i = 0; i < r->n && rc == 0; rank += r->v[i++].count) {
        if (r->v[i].type == TF_EVALUATOR)
            continue;
        rc = dd_buf_printf(out, "%s\"%s\": [", out->len > sizeof("{\"cluster\": ") ? ", " : "",
                           tf_type_name(r->v[i].type));
        for (int k = 0; k < r->v[i].count && rc == 0; k++)
            rc = dd_buf_printf(out, "%s\"%s\"", k > 0 ? ", " : "", p->endpoints.v[rank + k]);
        if (rc == 0)
            rc = dd_buf_puts(out, "]");
    }
    return rc < 0 ? rc : dd_buf_puts(out, "}");
}

static int put_config(struct dd_buf *out, const struct plan *p, const struct tf_roles *r,
                      const struct tf_task *t)
{
    int rc = dd_buf_puts(out, "{\"cluster\": ");
    if (rc == 0)
        rc = put_cluster(out, p, r);
    return rc < 0 ? rc
                  : dd_buf_printf(out, ", \"task\": {\"type\": \"%s\", \"index\": %d}}",
                                  tf_type_name(t->type), t->index);
}

static bool computes(const struct tf_roles *r, int rank)
{
    enum tf_type type = tf_roles_task(r, rank).type;
    return type == TF_CHIEF || type == TF_WORKER;
}

/* TensorFlow takes all visible GPUs. Give each worker of a node one GPU while there are any, and
 * none to parameter servers and the evaluator. */
static int mask(struct dd_strv *env, const struct framework_input *in, const struct tf_roles *r)
{
    const struct plan *p = in->plan;
    int mine = 0;
    int all = 0;
    for (int i = 0; i < p->local_size; i++) {
        all += computes(r, p->first_rank + i);
        mine += i < in->local_rank && computes(r, p->first_rank + i);
    }
    if (in->gpus == 0 || in->virtual_local_rank)
        return 0;
    if (!computes(r, p->first_rank + in->local_rank))
        return dd_env_set(env, "CUDA_VISIBLE_DEVICES", "");
    return all > 1 && all <= in->gpus ? framework_one_gpu(env, mine) : 0;
}

int framework_tensorflow(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    const struct plan *p = in->plan;
    const size_t most = FRAMEWORK_STRING_MAX - sizeof("TF_CONFIG=");
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(most);
    struct tf_roles r = in->tf_roles != NULL && in->tf_roles->n > 0 ? *in->tf_roles : all_workers;
    if ((in->frameworks & FRAMEWORK_TF) == 0)
        return 0;
    int rc = tf_roles_fit(&r, p->world_size, err);
    if (rc < 0)
        return -ENOTSUP;
    if (p->endpoints.n != (size_t)p->world_size)
        return dd_err_set(
            err, -ENOTSUP,
            "TF_CONFIG needs %d reserved port%s, one for each worker, but the nodes have reserved "
            "only %zu",
            p->world_size, p->world_size == 1 ? "" : "s", p->endpoints.n);
    const struct tf_task task = tf_roles_task(&r, p->first_rank + in->local_rank);
    rc = put_config(&text, p, &r, &task);
    if (rc == -EMSGSIZE)
        return dd_err_set(err, -ENOTSUP,
                          "TF_CONFIG of %d tasks exceeds Linux's limit of %d bytes for a variable"
                          "\n  tip: start fewer workers, for example --nproc-per-node=1",
                          p->world_size, FRAMEWORK_STRING_MAX);
    const char *config = rc == 0 ? dd_buf_str(&text) : NULL;
    rc = config == NULL ? -ENOMEM : dd_env_set(env, "TF_CONFIG", config);
    if (rc == 0 && !in->by_hand) /* ddrun holds the port with SO_REUSEPORT; Src: grpc_server_lib.cc,
                                    TensorFlow 2.3 and later */
        rc = dd_env_set(env, "TF_GRPC_REUSE_PORT", "1");
    return rc < 0 ? rc : mask(env, in, &r);
}
