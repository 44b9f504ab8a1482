#include "cmd/compile_cache_dirs.h"

#include "base/auto.h"
#include "cmd/stage_dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Src: XDG Base Directory Specification 0.8 (a relative XDG_CACHE_HOME is ignored) */
static int default_path(struct dd_strv *ret, char *const *env, struct dd_err *err)
{
    const char *cache = dd_env_get_nonempty(env, "XDG_CACHE_HOME");
    const char *home = dd_env_get_nonempty(env, "HOME");
    int rc;
    if (cache != NULL && cache[0] == '/')
        rc = dd_strv_pushf(ret, "%s/ddrun/compile", cache);
    else if (home != NULL && home[0] == '/')
        rc = dd_strv_pushf(ret, "%s/.cache/ddrun/compile", home);
    else
        return dd_err_tip(
            err,
            dd_err_set(err, -ENOENT,
                       "--compile-cache: no default directory: neither XDG_CACHE_HOME nor HOME "
                       "is an absolute path"),
            "name a directory: --compile-cache=DIR");
    return rc == 0 ? 0 : dd_err_set(err, rc, "out of memory");
}

int compile_cache_dirs_path(struct dd_strv *ret, const struct compile_cache_options *o,
                            char *const *env, struct dd_err *err)
{
    if (o->dir == NULL)
        return 0;
    if (o->dir[0] == '\0')
        return dd_err_set(err, -EINVAL,
                          "invalid value '' for --compile-cache: expected a directory, or no "
                          "value");
    if (strcmp(o->dir, COMPILE_CACHE_DEFAULT) == 0)
        return default_path(ret, env, err);
    DD_AUTO(free) char *here = getcwd(NULL, 0);
    if (here == NULL)
        return dd_err_set(err, -errno,
                          "--compile-cache: cannot determine the current directory: %m");
    const int rc = o->dir[0] == '/' ? dd_strv_push(ret, o->dir)
                                    : dd_strv_pushf(ret, "%s/%s", here, o->dir);
    return rc == 0 ? 0 : dd_err_set(err, rc, "out of memory");
}

void compile_cache_dirs_make(struct dd_scratch *ret, const char *stage_dir, char *const *env,
                             const struct dd_log *log)
{
    struct dd_err err = {0};
    if (stage_dirs_make_for_code(ret, stage_dir, env, &err) < 0)
        dd_log(log, DD_LOG_WARN, "--compile-cache: this node goes on without it: %s", err.text);
}

int compile_cache_dirs_describe(char **ret, const char *path, const char *stage_dir,
                                char *const *env)
{
    const char *to = stage_dir != NULL ? stage_dir : stage_dirs_choose_for_code(env);
    const int n = to != NULL ? asprintf(ret,
                                        "--compile-cache copies '%s' to a private directory in "
                                        "'%s', and new files back",
                                        path, to)
                             : asprintf(ret, "--compile-cache finds no local directory for caches");
    if (n < 0)
        *ret = NULL;
    return n < 0 ? -ENOMEM : 0;
}
