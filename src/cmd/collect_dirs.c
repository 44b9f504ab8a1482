#include "cmd/collect_dirs.h"

#include "base/auto.h"
#include "stage/collect_codec.h"
#include "stage/collect_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check that the directory, or the nearest existing one above it, is writable. */
static int collect_check_dir(const char *dir, struct dd_err *err)
{
    DD_AUTO(free) char *path = strdup(dir);
    struct stat st;
    if (path == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    while (stat(path, &st) < 0) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT || slash == NULL)
            return dd_err_set(err, -errno, "--collect: cannot use '%s': %m", dir);
        slash[slash == path] = '\0';
    }
    if (!S_ISDIR(st.st_mode))
        return dd_err_set(err, -ENOTDIR, "--collect: '%s' is not a directory", path);
    return access(path, W_OK | X_OK) == 0
               ? 0
               : dd_err_set(err, -errno, "--collect: cannot write to '%s': %m", path);
}

static int collect_add_rule(struct collect_dirs *d, const char *rule, bool receives,
                            struct dd_err *err)
{
    DD_AUTO(free) char *pattern = NULL;
    DD_AUTO(free) char *dir = NULL;
    int rc = collect_rule_split(rule, &pattern, &dir, err);
    if (rc < 0)
        return dd_err_where(err, rc, "--collect");
    rc = dd_strv_push(&d->patterns, pattern);
    if (rc == 0 && dir[0] == '/')
        rc = dd_strv_push(&d->dirs, dir);
    else if (rc == 0)
        rc = dd_strv_pushf(&d->dirs, "%s/%s", d->here, dir);
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory");
    return receives ? collect_check_dir(d->dirs.v[d->dirs.n - 1], err) : 0;
}

int collect_dirs_read(struct collect_dirs *ret, const struct collect_options *o, bool receives,
                      struct dd_err *err)
{
    if (o->rules.n > COLLECT_RULES)
        return dd_err_set(err, -E2BIG, "--collect was given %zu times: at most %d are possible",
                          o->rules.n, COLLECT_RULES);
    ret->here = getcwd(NULL, 0);
    int rc = ret->here != NULL
                 ? 0
                 : dd_err_set(err, -errno, "--collect: cannot determine the current directory: %m");
    for (size_t i = 0; i < o->rules.n && rc == 0; i++)
        rc = collect_add_rule(ret, o->rules.v[i], receives, err);
    return rc;
}

void collect_dirs_done(struct collect_dirs *d)
{
    dd_strv_done(&d->patterns);
    dd_strv_done(&d->dirs);
    free(d->here);
    *d = (struct collect_dirs){0};
}
