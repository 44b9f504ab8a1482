#include "node/memory.h"

#include "base/auto.h"
#include "base/num.h"
#include "node/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct limit {
    const char *root;
    uint64_t bytes; /* 0: no limit */
};

static void lower(struct limit *l, uint64_t bytes)
{
    if (bytes > 0 && (l->bytes == 0 || bytes < l->bytes))
        l->bytes = bytes;
}

/* Apply the limit in a file. "max" and a missing file mean no limit, and so does the largest number
 * of version 1, because it exceeds any memory. */
static void read_limit(struct limit *l, const char *path)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_CGROUP_TEXT_MAX);
    uint64_t bytes;
    if (!node_cgroup_read(&text, path))
        return;
    char *number = (char *)text.data;
    number[strcspn(number, "\n")] = '\0';
    if (dd_num_u64(number, 0, UINT64_MAX, &bytes) == 0)
        lower(l, bytes);
}

/* Apply the limits of a cgroup and of those above it. */
static void on_cgroup(void *arg, int version, const char *mount, const char *cgroup)
{
    struct limit *l = arg;
    const char *file = version == 2 ? "memory.max" : "memory.limit_in_bytes";
    size_t len = strlen(cgroup);
    for (bool top = false; !top;) {
        DD_AUTO(free) char *path = NULL;
        while (len > 0 && cgroup[len - 1] == '/')
            len--;
        if (asprintf(&path, "%s/sys/fs/cgroup%s%.*s/%s", l->root, mount, (int)len, cgroup, file) <
            0)
            return;
        read_limit(l, path);
        top = len == 0;
        while (len > 0 && cgroup[len - 1] != '/')
            len--;
    }
}

static void read_machine(struct limit *l)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_CGROUP_TEXT_MAX);
    DD_AUTO(free) char *path = NULL;
    unsigned long long kib;
    if (asprintf(&path, "%s/proc/meminfo", l->root) < 0 || !node_cgroup_read(&text, path))
        return;
    const char *line = strstr((char *)text.data, "MemTotal:");
    if (line != NULL && sscanf(line, "MemTotal: %llu kB", &kib) == 1)
        lower(l, (uint64_t)kib << 10);
}

uint64_t node_memory_limit(const char *root)
{
    struct limit l = {.root = root};
    read_machine(&l);
    node_cgroup_each(root, on_cgroup, &l);
    return l.bytes;
}
