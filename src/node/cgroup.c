#include "node/cgroup.h"

#include "base/auto.h"
#include "base/io.h"

#include <stdio.h>
#include <string.h>

bool node_cgroup_read(struct dd_buf *out, const char *path)
{
    dd_buf_clear(out);
    return dd_read_file(path, out, NULL) == 0 && dd_buf_str(out) != NULL;
}

static bool has_memory(const char *controllers)
{
    for (const char *p = strstr(controllers, "memory"); p != NULL; p = strstr(p + 1, "memory"))
        if ((p == controllers || p[-1] == ',') && (p[6] == '\0' || p[6] == ','))
            return true;
    return false;
}

void node_cgroup_each(const char *root, node_cgroup_f *fn, void *arg)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_CGROUP_TEXT_MAX);
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/proc/self/cgroup", root) < 0 || !node_cgroup_read(&text, path))
        return;
    for (char *save = NULL, *line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *cgroup = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (cgroup == NULL)
            continue;
        *cgroup++ = '\0';
        controllers++;
        if (has_memory(controllers))
            fn(arg, 1, "/memory", cgroup);
        else if (controllers[0] == '\0')
            fn(arg, 2, "", cgroup);
    }
}
