#include "node/health_inner.h"

#include "base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES_MAX = 256 };

bool health_read(const struct node_health *h, const char *dir, const char *name, const char *file,
                 void *to, size_t n)
{
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/%s/%s/%s", h->cfg.root, dir, name, file) < 0)
        return false;
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    memset(to, 0, n);
    return fd >= 0 && read(fd, to, n) > 0;
}

int health_list(const struct node_health *h, const char *dir, struct dd_strv *out)
{
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/%s", h->cfg.root, dir) < 0)
        return -ENOMEM;
    DIR *d = opendir(path);
    int rc = 0;
    for (struct dirent *e;
         rc == 0 && d != NULL && (e = readdir(d)) != NULL && out->n < DEVICES_MAX;)
        if (e->d_name[0] != '.')
            rc = dd_strv_push(out, e->d_name);
    if (d != NULL)
        closedir(d);
    return rc;
}
