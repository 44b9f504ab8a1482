#include "launch/find.h"

#include <paths.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_there(char out[PATH_MAX], const char *folder, size_t n, const char *name)
{
    int len = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, folder, name);
    return len > 0 && len < PATH_MAX && access(out, X_OK) == 0;
}

static bool find_program(char out[PATH_MAX], const struct starter *st)
{
    const char *path = dd_env_get_nonempty(environ, "PATH"); /* a shell may have one that it does not export */
    for (const char *s = path != NULL ? path : _PATH_STDPATH; *s != '\0'; s += *s == ':') {
        size_t n = strcspn(s, ":");
        if (n > 0 && is_there(out, s, n, st->program))
            return true;
        s += n;
    }
    return st->folder != NULL && is_there(out, st->folder, strlen(st->folder), st->program);
}

const struct starter *launch_find(char program[PATH_MAX], const char *name, const struct alloc *a, const char *words)
{
    const struct starter *st = NULL;
    program[0] = '\0';
    while ((st = starter_find(st, name, a->source)) != NULL)
        if (words != NULL || find_program(program, st))
            return st;
    return NULL;
}
