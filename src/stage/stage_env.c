#include "stage/stage_env.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/buf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 1 << 20 };

static const struct stage_env_var {
    const char *name;
    bool list;
} vars[] = {
    {"PATH", true},         {"PYTHONPATH", true},    {"LD_LIBRARY_PATH", true},
    {"VIRTUAL_ENV", false}, {"CONDA_PREFIX", false},
};

enum { VARS = sizeof(vars) / sizeof(vars[0]) };

static bool is_in(const char *path, const char *source)
{
    return dd_path_lies_in(path, strlen(path), source);
}

int stage_env_path(char **ret, const char *path, char *const *pairs)
{
    for (; pairs[0] != NULL; pairs += 2) {
        if (!is_in(path, pairs[0]))
            continue;
        return asprintf(ret, "%s%s", pairs[1], path + strlen(pairs[0])) < 0 ? -ENOMEM : 1;
    }
    return 0;
}

/* Write one element of a list of paths. */
static int put_element(struct dd_buf *out, const char *element, char *const *pairs)
{
    DD_AUTO(free) char *there = NULL;
    int rc = stage_env_path(&there, element, pairs);
    return rc < 0 ? rc : dd_buf_puts(out, rc > 0 ? there : element);
}

static int point_list(struct dd_strv *env, const char *name, char *const *pairs)
{
    const char *value = dd_env_get(env->v, name);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(VALUE_MAX);
    int rc = 0;
    for (const char *s = value; s != NULL && rc == 0;) {
        const size_t n = strcspn(s, ":");
        DD_AUTO(free) char *element = strndup(s, n);
        rc = element != NULL ? put_element(&out, element, pairs) : -ENOMEM;
        if (s[n] == '\0')
            break;
        rc = rc == 0 ? dd_buf_puts(&out, ":") : rc;
        s += n + 1;
    }
    if (rc < 0 || value == NULL)
        return rc;
    const char *text = dd_buf_str(&out);
    return text != NULL ? dd_env_set(env, name, text) : -ENOMEM;
}

static int point_path(struct dd_strv *env, const char *name, char *const *pairs)
{
    DD_AUTO(free) char *there = NULL;
    const char *value = dd_env_get(env->v, name);
    int rc = value != NULL ? stage_env_path(&there, value, pairs) : 0;
    return rc > 0 ? dd_env_set(env, name, there) : rc;
}

int stage_env_vars(struct dd_strv *env, char *const *pairs)
{
    int rc = 0;
    for (size_t i = 0; i < VARS && rc >= 0; i++)
        rc = (vars[i].list ? point_list : point_path)(env, vars[i].name, pairs);
    return rc < 0 ? rc : 0;
}

void stage_env_without(struct dd_strv *env, const char *dir)
{
    const size_t n = strlen(dir);
    size_t kept = 0;
    for (size_t i = 0; i < env->n; i++) {
        const char *value = strchr(env->v[i], '=');
        if (value != NULL && strncmp(value + 1, dir, n) == 0 && value[n + 1] == '/')
            free(env->v[i]);
        else
            env->v[kept++] = env->v[i];
    }
    env->n = kept;
    if (env->v != NULL)
        env->v[kept] = NULL;
}

/* Return the index of the first argument that is not an option. */
static size_t script_of(char *const *argv)
{
    size_t script = 1;
    while (argv[0] != NULL && argv[script] != NULL && argv[script][0] == '-')
        script++;
    return script;
}

static bool var_names(const struct stage_env_var *var, char *const *env, const char *source)
{
    const char *s = dd_env_get(env, var->name);
    for (; s != NULL && var->list; s = strchr(s, ':')) {
        s += *s == ':';
        if (dd_path_lies_in(s, strcspn(s, ":"), source))
            return true;
    }
    return s != NULL && is_in(s, source);
}

bool stage_env_names(const char *source, char *const *env, char *const *argv)
{
    bool any = false;
    for (size_t i = 0; i < VARS && !any; i++)
        any = var_names(&vars[i], env, source);
    if (any || argv[0] == NULL)
        return any;
    const char *script = argv[script_of(argv)];
    return is_in(argv[0], source) || (script != NULL && is_in(script, source));
}

int stage_env_argv(struct dd_strv *argv, char *const *pairs)
{
    const size_t which[] = {0, argv->n > 0 ? script_of(argv->v) : 1};
    for (size_t i = 0; i < 2 && which[i] < argv->n; i++) {
        char *there = NULL;
        int rc = stage_env_path(&there, argv->v[which[i]], pairs);
        if (rc < 0)
            return rc;
        if (rc > 0) {
            free(argv->v[which[i]]);
            argv->v[which[i]] = there;
        }
    }
    return 0;
}
