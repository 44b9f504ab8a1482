#include "node/oom.h"

#include "base/auto.h"
#include "base/num.h"
#include "node/cgroup.h"

#include <stdio.h>
#include <string.h>

/* Return the number after "oom_kill " at the start of a line. */
static uint64_t count_in(const char *path)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_CGROUP_TEXT_MAX);
    uint64_t n = 0;
    if (!node_cgroup_read(&text, path))
        return 0;
    for (char *save = NULL, *line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "oom_kill ", 9) == 0 && dd_num_u64(line + 9, 0, UINT64_MAX, &n) == 0)
            return n;
    return 0;
}

/* Read the file in the cgroup's directory, or in the top directory if a container hides the path
 * above. */
static uint64_t count_below(const char *root, const char *mount, const char *cgroup,
                            const char *file)
{
    DD_AUTO(free) char *path = NULL;
    DD_AUTO(free) char *top = NULL;
    if (asprintf(&path, "%s/sys/fs/cgroup%s%s/%s", root, mount,
                 strcmp(cgroup, "/") == 0 ? "" : cgroup, file) < 0)
        path = NULL;
    if (asprintf(&top, "%s/sys/fs/cgroup%s/%s", root, mount, file) < 0)
        top = NULL;
    uint64_t n = path != NULL ? count_in(path) : 0;
    return n == 0 && top != NULL ? count_in(top) : n;
}

struct kills {
    const char *root;
    uint64_t n;
};

static void on_cgroup(void *arg, int version, const char *mount, const char *cgroup)
{
    struct kills *k = arg;
    k->n += count_below(k->root, mount, cgroup,
                        version == 1 ? "memory.oom_control" : "memory.events");
}

uint64_t node_oom_kills(const char *root)
{
    struct kills k = {.root = root};
    node_cgroup_each(root, on_cgroup, &k);
    return k.n;
}
