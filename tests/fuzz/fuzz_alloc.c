/* alloc: any lines as an environment, some of them as options ("--hosts=...", "--node-rank=1") or
 * as the content of the only file ("file=..."). */
#include "alloc/alloc.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* True if the error's first line is followed by nothing but lines of tips. */
static bool is_tips(const char *lf)
{
    for (; lf != NULL; lf = strchr(lf + 1, '\n'))
        if (strncmp(lf, "\n  tip: ", 8) != 0)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *file; /* content of the only file, ';' for newline; NULL: there is none */

static int read_file(const char *path, struct dd_buf *out, struct dd_err *err)
{
    if (file == NULL)
        return dd_err_set(err, -ENOENT, "cannot open '%s'", path);
    for (const char *p = file; *p != '\0'; p++)
        if (dd_buf_append(out, *p == ';' ? "\n" : p, 1) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static void number(char *const *env, const char *name, int *ret)
{
    const char *text = dd_env_get(env, name);
    int n;
    if (text != NULL && dd_num_int(text, -1, 100000, &n) == 0)
        *ret = n;
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check(const struct alloc *a)
{
    size_t n = hostlist_count(a->nodes);
    must(n >= 1 && (n == (size_t)a->nnodes || n == 1));
    must(a->index >= -1 && a->index < a->nnodes);
    must(a->nports >= 0 && a->nports <= ALLOC_MAX_PORTS);
    for (int i = 0; i < a->nports; i++)
        must(a->ports[i] != 0);
    must(strlen(a->job_id) > 0 && strlen(a->job_id) <= 200 && strlen(a->run_id) > 0);
    for (const char *p = a->job_id; *p != '\0'; p++)
        must(*p > ' ' && *p < 0x7f && *p != '/');
    must(a->source != NULL && (a->host_addr == NULL || a->host_addr[0] != '\0'));
}

static char *const *addresses(void *machine)
{
    static char loop[] = "127.0.0.1";
    static char addr[] = "10.0.0.2";
    static char *addrs[] = {loop, addr, NULL};
    (void)machine;
    return addrs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(alloc) struct alloc *a = NULL;
    struct dd_err err = {.text = ""};
    if (text == NULL || size > 65536 || dd_strv_split(&env, text, "\n") < 0)
        return 0;
    file = dd_env_get(env.v, "file");
    struct alloc_input in = {.env = env.v,
                             .hostname = "node2",
                             .local_addrs = addresses,
                             .read_file = read_file,
                             .node_rank = -1,
                             .master_addr = dd_env_get(env.v, "--master-addr"),
                             .rdzv_endpoint = dd_env_get(env.v, "--rdzv-endpoint"),
                             .rdzv_id = dd_env_get(env.v, "--rdzv-id"),
                             .hosts = dd_env_get(env.v, "--hosts"),
                             .hostfile = dd_env_get(env.v, "--hostfile"),
                             .have_nproc = dd_env_get(env.v, "--nproc-per-node") != NULL};
    number(env.v, "--min", &in.min_nodes);
    number(env.v, "--max", &in.max_nodes);
    number(env.v, "--node-rank", &in.node_rank);
    number(env.v, "--master-port", &in.master_port);
    if (alloc_find(&a, &in, &err) == 0)
        check(a);
    else
        must(err.text[0] != '\0' && is_tips(strchr(err.text, '\n')) && a == NULL);
    return 0;
}
