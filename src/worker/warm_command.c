#include "worker/warm_command.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How --warm treats an option of Python. */
enum option_use {
    OPTION_PASS,   /* passed to the interpreter */
    OPTION_VALUE,  /* passed to the interpreter with its value, the rest of the argument or the next
                      argument */
    OPTION_TARGET, /* -m, -c: ends the options */
    OPTION_REFUSED, /* would prevent the program of --warm or the user's program from running */
};

static enum option_use use_of(char letter)
{
    if (strchr("bBdOPqsuvx", letter) != NULL)
        return OPTION_PASS;
    if (letter == 'W' || letter == 'X')
        return OPTION_VALUE;
    return letter == 'm' || letter == 'c' ? OPTION_TARGET : OPTION_REFUSED;
}

static int refuse_option(const char *word, struct dd_err *err)
{
    return dd_err_set(
        err, -EINVAL,
        "--warm cannot be combined with Python's option '%.100s': an interpreter that "
        "is started with it does not fork workers",
        word);
}

static int no_target(struct dd_err *err)
{
    return dd_err_set(err, -EINVAL, "--warm needs a program: a script, -m MODULE or -c CODE");
}

static int out_of_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Read one word of options, argv[*at], and the value that may follow it. Set *at to the last word
 * that was read. Return 1 if the word has named the target. */
static int read_word(struct warm_command *ret, char *const *argv, size_t *at, struct dd_err *err)
{
    const char *word = argv[*at];
    const char *p = word + 1;
    enum option_use use = OPTION_PASS;
    for (; *p != '\0' && use == OPTION_PASS; p++) {
        use = use_of(*p);
        ret->unbuffered |= *p == 'u';
    }
    if (use == OPTION_REFUSED || p == word + 1)
        return refuse_option(word, err);
    if (use == OPTION_TARGET) {
        ret->kind = p[-1] == 'm' ? "module" : "command";
        ret->target = *p != '\0' ? p : argv[++*at];
        if (p - word > 2 && dd_strv_pushn(&ret->options, word, (size_t)(p - word) - 1) < 0)
            return out_of_memory(err);
        return ret->target != NULL ? 1 : no_target(err);
    }
    if (dd_strv_push(&ret->options, word) < 0)
        return out_of_memory(err);
    if (use == OPTION_VALUE && *p == '\0') {
        if (argv[++*at] == NULL)
            return no_target(err);
        return dd_strv_push(&ret->options, argv[*at]) < 0 ? out_of_memory(err) : 0;
    }
    return 0;
}

int warm_command_parse(struct warm_command *ret, char *const *argv, struct dd_err *err)
{
    *ret = (struct warm_command){0};
    size_t at = 1;
    int rc = 0;
    if (argv == NULL || argv[0] == NULL)
        return no_target(err);
    for (; rc == 0 && argv[at] != NULL && argv[at][0] == '-' && argv[at][1] != '\0'; at++)
        rc = read_word(ret, argv, &at, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        if (argv[at] == NULL || strcmp(argv[at], "-") == 0)
            return no_target(err);
        ret->kind = "script";
        ret->target = argv[at++];
    }
    ret->arguments = at;
    return 0;
}

void warm_command_done(struct warm_command *c)
{
    dd_strv_done(&c->options);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool warm_command_is_python(const char *program, char *const *env)
{
    const char *name = base_name(program);
    const char *said = dd_env_get_nonempty(env, "PYTHON_EXEC");
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0 ||
           (said != NULL && strcmp(name, base_name(said)) == 0);
}

bool warm_env_is_early(const char *name)
{
    /* PYTHONUNBUFFERED is not early: the worker's streams are made anew */
    static const char *const prefixes[] = {"LD_",  "LC_",  "MALLOC_",  "OMP_",  "GOMP_",
                                           "KMP_", "MKL_", "OPENBLAS", "BLIS_", "NUMEXPR_"};
    if (strncmp(name, "PYTHON", 6) == 0)
        return strcmp(name, "PYTHONUNBUFFERED") != 0 && strcmp(name, "PYTHON_EXEC") != 0;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return strcmp(name, "LANG") == 0 || strcmp(name, "GLIBC_TUNABLES") == 0;
}

/* dd_env_diff_f: stop at the first early variable, and keep its name. */
static int find_early(void *arg, const char *name, const char *value)
{
    char **ret = arg;
    (void)value;
    if (!warm_env_is_early(name))
        return 0;
    *ret = strdup(name);
    return 1;
}

char *warm_env_difference(char *const *interpreter, char *const *worker)
{
    char *name = NULL;
    int rc = dd_env_diff(interpreter, worker, find_early, &name);
    return rc < 0 ? strdup("environment") : name;
}

static int drop_variable(void *arg, const char *name, const char *value)
{
    (void)value;
    dd_env_unset(arg, name);
    return 0;
}

int warm_env_common(struct dd_strv *out, char *const *a, char *const *b)
{
    int rc = dd_strv_copy(out, a);
    return rc < 0 ? rc : dd_env_diff(b, a, drop_variable, out);
}
