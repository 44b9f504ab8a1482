#include "worker/program.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/buf.h"
#include "base/opt.h"
#include "worker/spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUBSTITUTED_MAX (1 << 20)

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* ---- programs that arrive later ---- */

/* True if the path lies in a directory that this node may lack until the workers start. */
static bool arrives(const struct program_spec *spec, const char *path, size_t len)
{
    for (size_t i = 0; spec->arriving != NULL && spec->arriving[i] != NULL; i++)
        if (dd_path_lies_in(path, len, spec->arriving[i]))
            return true;
    return false;
}

/* True if the program, or one that precedes it in PATH, may arrive later. */
static bool may_arrive(const struct program_spec *spec, const char *name)
{
    if (strchr(name, '/') != NULL)
        return arrives(spec, name, strlen(name));
    const char *dirs = dd_env_get(spec->env, "PATH");
    for (size_t n; dirs != NULL; dirs = dirs[n] != '\0' ? dirs + n + 1 : NULL) {
        n = strcspn(dirs, ":");
        if (arrives(spec, dirs, n))
            return true;
    }
    return false;
}

/* As spawn_lookup(), but return a name itself if PATH may find another program later. */
static int lookup(char **ret, const char *name, const struct program_spec *spec)
{
    const int rc = spawn_lookup(ret, name, spec->env);
    if (rc < 0 || strchr(name, '/') != NULL || !may_arrive(spec, name))
        return rc;
    free(*ret);
    *ret = strdup(name);
    return *ret != NULL ? 0 : -ENOMEM;
}

static char *absolute(const char *name)
{
    char *ret = NULL;
    if (*name == '/' || strchr(name, '/') == NULL)
        return strdup(name);
    DD_AUTO(free) char *here = getcwd(NULL, 0);
    name += strncmp(name, "./", 2) == 0 ? 2 : 0;
    return here != NULL && asprintf(&ret, "%s/%s", here, name) >= 0 ? ret : NULL;
}

/* As lookup(), but accept a program that does not exist yet. */
static int lookup_later(char **ret, const char *name, const struct program_spec *spec)
{
    const int rc = lookup(ret, name, spec);
    DD_AUTO(free) char *path = rc == -ENOENT ? absolute(name) : NULL;
    if (path == NULL || !may_arrive(spec, path))
        return rc;
    *ret = DD_TAKE(path);
    return 0;
}

/* ---- Python ---- */

/* Find the interpreter of an activated environment in DIR/bin. Return 1 if there is none. */
static int python_in(char **ret, const char *dir, const struct program_spec *spec)
{
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; dir != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        DD_AUTO(free) char *path = NULL;
        if (asprintf(&path, "%s/bin/%s", dir, names[i]) < 0)
            return -ENOMEM;
        int rc = lookup_later(ret, path, spec);
        if (rc == 0 || rc == -ENOMEM)
            return rc;
    }
    return 1;
}

static int python_find(char **ret, const struct program_spec *spec, struct dd_err *err)
{
    char *const *env = spec->env;
    const char *said = dd_env_get_nonempty(env, "PYTHON_EXEC");
    if (said != NULL) {
        int rc = lookup_later(ret, said, spec);
        return rc == 0
                   ? 0
                   : dd_err_set(err, rc,
                                "cannot run PYTHON_EXEC=%s: %s"
                                "\n  tip: set it to the path of a Python interpreter, or unset it",
                                said, rc == -EACCES ? "not an executable file" : strerror(-rc));
    }
    static const char *const envs[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    int rc = 1;
    for (size_t i = 0; rc == 1 && i < sizeof(envs) / sizeof(envs[0]); i++)
        rc = python_in(ret, dd_env_get_nonempty(env, envs[i]), spec);
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; rc != 0 && rc != -ENOMEM && i < sizeof(names) / sizeof(names[0]); i++)
        rc = lookup_later(ret, names[i], spec);
    if (rc == -ENOMEM)
        return no_memory(err);
    const char *path = dd_env_get(env, "PATH");
    return rc == 0 ? 0
                   : dd_err_set(
                         err, -ENOENT,
                         "no Python interpreter found in VIRTUAL_ENV, CONDA_PREFIX or PATH (%s)"
                         "\n  tip: activate an environment, or set PYTHON_EXEC to an interpreter",
                         path == NULL ? "not set" : path);
}

/* Return the length of a reference to local_rank at s ("$local_rank", "${local_rank}"), or 0. */
static size_t reference(const char *s)
{
    static const char braced[] = "${local_rank}", plain[] = "$local_rank";
    if (strncmp(s, braced, sizeof(braced) - 1) == 0)
        return sizeof(braced) - 1;
    size_t n = sizeof(plain) - 1;
    bool ends = strncmp(s, plain, n) == 0 && !isalnum((unsigned char)s[n]) && s[n] != '_';
    return ends ? n : 0;
}

/* True if the name depends on the rank, and cannot be looked up in advance. */
static bool is_per_rank(const char *name)
{
    for (const char *s = strchr(name, '$'); s != NULL; s = strchr(s, '$')) {
        if (reference(s) > 0)
            return true;
        s += s[1] == '$' ? 2 : 1;
    }
    return false;
}

/* The same as torchrun's workers do with --run-path: record() writes an exception to the error
 * file. */
static const char run_path_code[] =
    "import os, runpy, sys\n"
    "sys.argv = sys.argv[1:]\n"
    "sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))\n"
    "try:\n"
    "    from torch.distributed.elastic.multiprocessing.errors import record\n"
    "except ImportError:\n"
    "    def record(f):\n"
    "        return f\n"
    "record(runpy.run_path)(sys.argv[0], run_name='__main__')\n";

static int push_python(struct dd_strv *out, const struct program_spec *spec, struct dd_err *err)
{
    DD_AUTO(free) char *python = NULL;
    int rc = python_find(&python, spec, err);
    if (rc < 0)
        return rc;
    if (dd_strv_push(out, python) < 0 || dd_strv_push(out, "-u") < 0 ||
        (spec->run_path && (dd_strv_push(out, "-c") < 0 || dd_strv_push(out, run_path_code) < 0)) ||
        (spec->module && !spec->run_path && dd_strv_push(out, "-m") < 0) ||
        dd_strv_copy(out, spec->argv) < 0)
        return no_memory(err);
    return 0;
}

/* True for x.py, and for a directory with a __main__.py, as in python itself. */
static bool is_python(const char *script)
{
    DD_AUTO(free) char *main_py = NULL;
    if (ends_with(script, ".py"))
        return true;
    return is_dir(script) && asprintf(&main_py, "%s/__main__.py", script) >= 0 && is_file(main_py);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

enum { SIMILAR_MAX = 10000 };

/* Find the Python script in the directory of `script` with the most similar name; false if none is
 * similar. */
static bool similar_script(const char *script, char ret[64])
{
    const char *base = base_of(script);
    const size_t len = strlen(base);
    DD_AUTO(free) char *dir = NULL;
    size_t least = len / 3 + 1;
    const struct dirent *e;
    if (asprintf(&dir, "%.*s.", (int)(base - script), script) < 0)
        return false;
    DIR *d = opendir(dir);
    ret[0] = '\0';
    for (int i = 0; d != NULL && i < SIMILAR_MAX && (e = readdir(d)) != NULL; i++) {
        const size_t n = ends_with(e->d_name, ".py") ? opt_distance(base, len, e->d_name) : least;
        if (n >= least)
            continue;
        least = n;
        (void)snprintf(ret, 64, "%.63s", e->d_name);
    }
    if (d != NULL)
        (void)closedir(d);
    return ret[0] != '\0';
}

/* Add a tip for a frequent reason why there is no such program or script. */
static int tip_absent(const char *name, int rc, struct dd_err *err)
{
    DD_AUTO(free) char *script = NULL;
    const size_t word = strcspn(name, " ");
    const size_t variable = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    if (variable > 0 && name[variable] == '=')
        return dd_err_tip(err, rc, "set a variable of the workers with an option: -x %.200s", name);
    if (word > 0 && name[word] != '\0')
        return dd_err_tip(
            err, rc, "if these are a program and its arguments, separate them: omit the quotes");
    if (asprintf(&script, "%s.py", name) >= 0 && is_file(script))
        return dd_err_tip(err, rc, "did you mean '%.200s'?", script);
    return rc;
}

static int script_check(const char *script, const struct program_spec *spec, struct dd_err *err)
{
    char similar[64];
    DD_AUTO(free) char *cwd = NULL;
    if (access(script, R_OK) == 0) {
        if (is_dir(script) && ends_with(script, ".py"))
            return dd_err_set(err, -EISDIR, "the script '%s' is a directory", script);
        return 0;
    }
    if (errno == ENOENT && arrives(spec, script, strlen(script)))
        return 0;
    if (errno != ENOENT || *script == '/')
        return dd_err_set(err, -errno, "cannot read the script '%s': %m", script);
    cwd = getcwd(NULL, 0);
    int rc = dd_err_set(err, -ENOENT, "the script '%s' does not exist (current directory: %s)",
                        script, cwd == NULL ? "gone" : cwd);
    if (similar_script(script, similar))
        return dd_err_tip(err, rc, "did you mean '%.*s%s'?", (int)(base_of(script) - script),
                          script, similar);
    return tip_absent(script, rc, err);
}

/* Return the program that the "#!" line names: "sh", "python3" for "/usr/bin/env python3"; "" if
 * there is no such line. */
static void interpreter_of(const char *path, char ret[64])
{
    char line[256] = "";
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : 0;
    char *save = NULL;
    ret[0] = '\0';
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    if (strncmp(line, "#!", 2) != 0)
        return;
    for (char *word = strtok_r(line + 2, " \t", &save); word != NULL;
         word = strtok_r(NULL, " \t", &save)) {
        const char *base = base_of(word);
        if (strcmp(base, "env") == 0 || *base == '-' || strchr(base, '=') != NULL)
            continue;
        (void)snprintf(ret, 64, "%.63s", base);
        return;
    }
}

static int not_executable(const char *name, struct dd_err *err)
{
    char interpreter[64];
    int rc = dd_err_set(err, -EACCES, "'%.200s' is not executable", name);
    if (ends_with(name, ".ipynb"))
        return dd_err_tip(err, rc,
                          "convert the notebook first: jupyter nbconvert --to script %.200s", name);
    interpreter_of(name, interpreter);
    if (interpreter[0] == '\0')
        return dd_err_tip(err, rc, "chmod +x %.200s", name);
    return dd_err_tip(err, rc, "chmod +x %.150s, or name its interpreter: ddrun %s %.150s", name,
                      interpreter, name);
}

static int not_found(const char *name, struct dd_err *err)
{
    if (is_dir(name))
        return dd_err_set(err, -EISDIR, "'%s' is a directory, not a program", name);
    if (is_file(name))
        return not_executable(name, err);
    if (strchr(name, '/') != NULL)
        return dd_err_set(err, -ENOENT, "cannot run the program '%s': %s", name,
                          access(name, F_OK) < 0 ? strerror(errno) : "not a regular file");
    const int rc = dd_err_set(
        err, -ENOENT, "no executable program '%s' in PATH or in the current directory", name);
    return tip_absent(name, rc, err);
}

static int push_program(struct dd_strv *out, const struct program_spec *spec, struct dd_err *err)
{
    const char *name = spec->argv[0];
    DD_AUTO(free) char *path = NULL;
    if (is_per_rank(name))
        return dd_strv_copy(out, spec->argv) < 0 ? no_memory(err) : 0;
    int rc = lookup(&path, name, spec);
    if (rc < 0 && rc != -ENOMEM && strchr(name, '/') == NULL) {
        /* like torchrun, accept a file of the current directory without "./" */
        DD_AUTO(free) char *here = NULL;
        if (asprintf(&here, "./%s", name) < 0)
            return no_memory(err);
        rc = spawn_lookup(&path, here, spec->env);
    }
    if (rc == -ENOENT)
        rc = lookup_later(&path, name, spec);
    if (rc == -ENOMEM)
        return no_memory(err);
    if (rc < 0)
        return not_found(name, err);
    return dd_strv_push(out, path) < 0 || dd_strv_copy(out, spec->argv + 1) < 0 ? no_memory(err)
                                                                                : 0;
}

int program_resolve(struct dd_strv *out, const struct program_spec *spec, struct dd_err *err)
{
    const char *name = spec->argv == NULL ? NULL : spec->argv[0];
    if (spec->module && spec->no_python && !spec->run_path)
        return dd_err_set(err, -EINVAL, "--module and --no-python are mutually exclusive");
    if (name == NULL || *name == '\0')
        return dd_err_set(err, -EINVAL,
                          "missing program: expected a script, a module or an executable file");
    if (spec->module && !spec->run_path)
        return push_python(out, spec, err);
    if (!spec->run_path && (spec->no_python || !(spec->is_python || is_python(name))))
        return push_program(out, spec, err);
    int rc = is_per_rank(name) ? 0 : script_check(name, spec, err);
    return rc < 0 ? rc : push_python(out, spec, err);
}

static int substitute(struct dd_buf *b, const char *s, int local_rank)
{
    int rc = 0;
    while (rc == 0 && *s != '\0') {
        size_t n = strcspn(s, "$");
        rc = dd_buf_append(b, s, n);
        s += n;
        if (*s == '\0' || rc < 0)
            break;
        n = reference(s);
        if (n > 0)
            rc = dd_buf_printf(b, "%d", local_rank);
        else
            rc = dd_buf_append(b, "$", 1);
        s += n > 0 ? n : s[1] == '$' ? 2 : 1;
    }
    return rc;
}

int program_for_rank(struct dd_strv *out, char *const *argv, int local_rank)
{
    for (; argv != NULL && *argv != NULL; argv++) {
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(SUBSTITUTED_MAX);
        const char *s = substitute(&b, *argv, local_rank) < 0 ? NULL : dd_buf_str(&b);
        if (s == NULL || dd_strv_push(out, s) < 0)
            return -ENOMEM;
    }
    return 0;
}
