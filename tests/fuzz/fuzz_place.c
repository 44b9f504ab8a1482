/* rdzv/task_layout: any lines as the environment of a process of a job, some of them as options
 * ("--rank=3"); a layout that is found agrees with its plan. */
#include "rdzv/task_layout.h"

#include "alloc/alloc.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int no_file(const char *path, struct dd_buf *out, struct dd_err *err)
{
    (void)out;
    return dd_err_set(err, -ENOENT, "cannot open '%s'", path);
}

static int number(char *const *env, const char *name, int missing)
{
    const char *text = dd_env_get(env, name);
    int n;
    return text != NULL && dd_num_int(text, 0, 5000, &n) == 0 ? n : missing;
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check(const struct task_layout *p)
{
    const struct plan *plan = &p->plan;
    long sum = 0;
    for (int i = 0; i < plan->nnodes; i++) {
        must(plan->sizes[i] > 0);
        sum += plan->sizes[i];
    }
    must(plan->nnodes == (int)hostlist_count(p->nodes) && sum == plan->world_size &&
         plan->nodes != NULL);
    must(p->node >= -1 && p->node < plan->nnodes);
    if (p->node < 0)
        return;
    must(plan->node_rank == p->node && plan->local_size == plan->sizes[p->node]);
    must(p->first >= 0 && p->n >= 1 && p->first + p->n <= plan->local_size);
    must(plan->first_rank >= 0 &&
         (p->scattered || plan->first_rank + plan->local_size <= plan->world_size));
}

static char *const *addresses(void *machine)
{
    static char loop[] = "127.0.0.1";
    static char *addrs[] = {loop, NULL};
    (void)machine;
    return addrs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(alloc) struct alloc *a = NULL;
    DD_AUTO(task_layout) struct task_layout p = {0};
    struct dd_err err = {.text = ""};
    if (text == NULL || size > 4096 || dd_strv_split(&env, text, "\n") < 0)
        return 0;
    const struct alloc_input in = {.env = env.v,
                                   .hostname = "node2",
                                   .local_addrs = addresses,
                                   .read_file = no_file,
                                   .node_rank = -1,
                                   .hosts = dd_env_get(env.v, "--hosts"),
                                   .list_only = true,
                                   .whole_job = dd_env_get(env.v, "--whole-job") != NULL};
    if (alloc_find(&a, &in, NULL) < 0)
        return 0;
    const struct task_layout_input who = {.alloc = a,
                                          .env = env.v,
                                          .slots = number(env.v, "--nproc-per-node", 0),
                                          .rank = number(env.v, "--rank", -1),
                                          .node = number(env.v, "--node", -1)};
    if (task_layout_find(&p, &who, &err) == 0)
        check(&p);
    else
        must(err.text[0] != '\0');
    return 0;
}
