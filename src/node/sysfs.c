#include "node/sysfs.h"

#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>

bool node_range_next(const char **s, unsigned long *from, unsigned long *to)
{
    char *end;
    if (**s < '0' || **s > '9')
        return false;
    *from = *to = strtoul(*s, &end, 10);
    if (*end == '-')
        *to = strtoul(end + 1, &end, 10);
    *s = *end == ',' ? end + 1 : end;
    return true;
}

const char *node_sys_read(struct dd_buf *b, const char *root, const char *dir, int n,
                          const char *file)
{
    char path[600];
    int len = snprintf(path, sizeof(path), "%s/sys/devices/system/%s%d%s", root, dir, n, file);
    dd_buf_clear(b);
    if (len < 0 || (size_t)len >= sizeof(path) || dd_read_file(path, b, NULL) < 0)
        return NULL;
    return dd_buf_str(b);
}
