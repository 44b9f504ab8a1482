/* Horovod with Gloo: the variables that horovodrun sets. The rendezvous server belongs to the
 * agent, on a loopback port of each node (src/http). Src: Horovod 0.28.1. */
#include "framework/rows.h"

/* Return how many of the first nnodes nodes have a worker with this local rank. */
static int cross_size(const struct plan *p, int local_rank, int nnodes)
{
    int n = 0;
    for (int i = 0; i < nnodes; i++)
        n += p->sizes[i] > local_rank;
    return n;
}

static int ranks(struct dd_strv *env, const struct framework_input *in)
{
    const struct plan *p = in->plan;
    const struct framework_number rows[] = {
        {"HOROVOD_RANK", p->first_rank + in->local_rank},
        {"HOROVOD_SIZE", p->world_size},
        {"HOROVOD_LOCAL_RANK", in->local_rank},
        {"HOROVOD_LOCAL_SIZE", p->local_size},
        {"HOROVOD_CROSS_RANK", cross_size(p, in->local_rank, p->node_rank)},
        {"HOROVOD_CROSS_SIZE", cross_size(p, in->local_rank, p->nnodes)},
    };
    return framework_numbers(env, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Without a server, remove the address but keep the size: Horovod then fails, while without a size
 * each rank would train alone. */
static int server(struct dd_strv *env, const struct framework_input *in)
{
    if (in->horovod_port == NULL) {
        dd_env_unset(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR");
        dd_env_unset(env, "HOROVOD_GLOO_RENDEZVOUS_PORT");
        return 0;
    }
    int rc = dd_env_set(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
    return rc < 0 ? rc : dd_env_set(env, "HOROVOD_GLOO_RENDEZVOUS_PORT", in->horovod_port);
}

int framework_horovod(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    static const struct {
        const char *name, *value;
    } choices[] = {
        {"HOROVOD_CONTROLLER",
         "gloo"}, /* without these two, each rank of a Horovod with MPI would run alone */
        {"HOROVOD_CPU_OPERATIONS", "gloo"},
        {"HOROVOD_GLOO_TIMEOUT_SECONDS", "300"}, /* imports are slow on a shared file system */
    };
    (void)err;
    if (in->by_hand) /* without an agent, there is no server */
        return 0;
    dd_env_unset(env, "_HOROVOD_SECRET_KEY"); /* set by a horovodrun that has started this ddrun */
    int rc = ranks(env, in);
    if (rc == 0)
        rc = dd_env_set(env, "HOROVOD_HOSTNAME", in->node_name);
    if (rc == 0)
        rc = server(env, in);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]) && rc == 0; i++)
        rc = framework_default(env, choices[i].name, choices[i].value);
    if (rc == 0 && in->elastic)
        rc = framework_default(env, "HOROVOD_ELASTIC", "1");
    return rc < 0 || in->iface == NULL ? rc
                                       : framework_default(env, "HOROVOD_GLOO_IFACE", in->iface);
}
