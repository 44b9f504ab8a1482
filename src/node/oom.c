#include "node/oom.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 1 << 16 };

static bool read_text(struct dd_buf *out, const char *path)
{
    dd_buf_clear(out);
    return dd_read_file(path, out, NULL) == 0 && dd_buf_str(out) != NULL;
}

/* The number behind "oom_kill " at the beginning of a line. */
static uint64_t count_in(const char *path)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    uint64_t n = 0;
    if (!read_text(&text, path))
        return 0;
    for (char *save = NULL, *line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "oom_kill ", 9) == 0 && dd_num_u64(line + 9, 0, UINT64_MAX, &n) == 0)
            return n;
    return 0;
}

/* Where the cgroup's file may be: as the line says, or at the top, when a container hides what is above. */
static uint64_t count_below(const char *root, const char *mount, const char *cgroup, const char *file)
{
    DD_AUTO(free) char *path = NULL;
    DD_AUTO(free) char *top = NULL;
    if (asprintf(&path, "%s/sys/fs/cgroup%s%s/%s", root, mount, strcmp(cgroup, "/") == 0 ? "" : cgroup, file) < 0)
        path = NULL;
    if (asprintf(&top, "%s/sys/fs/cgroup%s/%s", root, mount, file) < 0)
        top = NULL;
    uint64_t n = path != NULL ? count_in(path) : 0;
    return n == 0 && top != NULL ? count_in(top) : n;
}

static bool has_memory(const char *controllers)
{
    for (const char *p = strstr(controllers, "memory"); p != NULL; p = strstr(p + 1, "memory"))
        if ((p == controllers || p[-1] == ',') && (p[6] == '\0' || p[6] == ','))
            return true;
    return false;
}

uint64_t node_oom_kills(const char *root)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    DD_AUTO(free) char *path = NULL;
    uint64_t n = 0;
    if (asprintf(&path, "%s/proc/self/cgroup", root) < 0 || !read_text(&text, path))
        return 0;
    for (char *save = NULL, *line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *cgroup = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (cgroup == NULL)
            continue;
        *cgroup++ = '\0';
        controllers++;
        if (has_memory(controllers))
            n += count_below(root, "/memory", cgroup, "memory.oom_control");
        else if (controllers[0] == '\0')
            n += count_below(root, "", cgroup, "memory.events");
    }
    return n;
}
