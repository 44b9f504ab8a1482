#include "node/oom.h"

#include "base/auto.h"
#include "base/num.h"
#include "node/cgroup.h"

#include <stdio.h>
#include <string.h>

/* Read the number after "oom_kill " at the start of a line. False if the file has none. */
static bool count_in(const char *path, uint64_t *ret)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_CGROUP_TEXT_MAX);
    if (!node_cgroup_read(&text, path))
        return false;
    for (char *save = NULL, *line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "oom_kill ", 9) == 0 && dd_num_u64(line + 9, 0, UINT64_MAX, ret) == 0)
            return true;
    return false;
}

/* Return the count in the file of the cgroup, or of the top directory if a container hides the
 * cgroup's path. */
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
    uint64_t n = 0;
    if (path == NULL || !count_in(path, &n))
        n = top != NULL && count_in(top, &n) ? n : 0;
    return n;
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
