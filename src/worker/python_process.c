#include "worker/python_process.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "worker/children.h"
#include "worker/spawn.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 4, CHILDREN_MAX = 64 << 10, CHILDREN_ASKED = 16 };

static bool has_python_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
}

static bool read_program(pid_t pid, char path[PATH_MAX])
{
    char link[40];
    (void)snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    const ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* True also if /proc/PID/exe is unreadable, as for a process that is not dumpable. */
static bool may_run_python(pid_t pid)
{
    char path[PATH_MAX];
    return read_program(pid, path) ? has_python_name(path) : errno == EACCES;
}

/* Return the first child; 0: none, or the kernel has no such file. */
static pid_t first_child(pid_t pid)
{
    char path[64];
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(CHILDREN_MAX);
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    return text != NULL ? (pid_t)strtol(text, NULL, 10) : 0;
}

pid_t python_process_find(pid_t worker)
{
    pid_t pid = worker;
    for (int i = 0; i < DEPTH && pid > 0; i++) {
        if (may_run_python(pid))
            return pid;
        pid = first_child(pid);
    }
    return 0;
}

bool python_process_is_in_podman(pid_t worker)
{
    pid_t pid = worker;
    for (int i = 0; i < DEPTH && pid > 0; i++) {
        if (children_is_called(pid, "podman"))
            return true;
        pid = first_child(pid);
    }
    return false;
}

size_t python_process_children(pid_t python, pid_t *v, size_t most)
{
    DD_AUTO(pid_list) struct pid_list found = {0};
    size_t n = 0;
    (void)children_of_threads(python, &found); /* -ENOMEM: the list is incomplete */
    const size_t direct = found.n;
    for (size_t i = 0; i < direct && i < CHILDREN_ASKED; i++)
        (void)children_of_threads(found.v[i], &found);
    for (size_t i = 0; i < found.n && n < most; i++)
        if (may_run_python(found.v[i]))
            v[n++] = found.v[i];
    return n;
}

/* ---- py-spy ---- */

/* Look for py-spy in the directory of a program. */
static int beside(char **ret, const char *program, char *const *env)
{
    const char *slash = program != NULL ? strrchr(program, '/') : NULL;
    DD_AUTO(free) char *path = NULL;
    if (slash == NULL || program[0] != '/')
        return -ENOENT;
    if (asprintf(&path, "%.*s/py-spy", (int)(slash - program), program) < 0)
        return -ENOMEM;
    return spawn_lookup(ret, path, env);
}

static int in_virtual_env(char **ret, char *const *env)
{
    const char *top = dd_env_get_nonempty(env, "VIRTUAL_ENV");
    DD_AUTO(free) char *program = NULL;
    if (top == NULL)
        return -ENOENT;
    if (asprintf(&program, "%s/bin/python", top) < 0)
        return -ENOMEM;
    return beside(ret, program, env);
}

/* The arguments of the process would name the Python of a virtual environment, too, but reading
 * them may block while the process is in state D. */
int python_process_py_spy(char **ret, pid_t python, const char *program, char *const *env,
                          const char *wanted)
{
    char path[PATH_MAX];
    if (wanted != NULL)
        return spawn_lookup(ret, wanted, env);
    int rc = beside(ret, program, env);
    if (rc == -ENOENT)
        rc = in_virtual_env(ret, env);
    if (rc == -ENOENT && read_program(python, path))
        rc = beside(ret, path, env);
    return rc == -ENOENT ? spawn_lookup(ret, "py-spy", env) : rc;
}
