#include "launch/find.h"

#include "base/auto.h"
#include "base/installed.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_there(char out[PATH_MAX], const char *directory, size_t n, const char *name)
{
    int len = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, directory, name);
    return len > 0 && len < PATH_MAX && access(out, X_OK) == 0;
}

/* Run a program with one argument. Store the first line of its stderr in `said`. Return its wait
 * status, or -errno if it cannot be run. */
static int ask(const char *program, const char *word, char *said, size_t size)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    posix_spawn_file_actions_t to;
    int ends[2];
    pid_t pid;
    size_t n = 0;
    int status = 0;
    if (dd_strv_push(&argv, program) < 0 || dd_strv_push(&argv, word) < 0)
        return -ENOMEM;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    (void)posix_spawn_file_actions_init(&to);
    (void)posix_spawn_file_actions_adddup2(&to, ends[1], STDERR_FILENO);
    int rc = -posix_spawn(&pid, program, &to, NULL, argv.v, environ);
    (void)posix_spawn_file_actions_destroy(&to);
    close(ends[1]);
    for (ssize_t k; rc == 0 && n + 1 < size &&
                    ((k = read(ends[0], said + n, size - 1 - n)) > 0 || (k < 0 && errno == EINTR));)
        n += k > 0 ? (size_t)k : 0;
    said[n] = '\0';
    said[strcspn(said, "\n")] = '\0';
    close(ends[0]);
    while (rc == 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            rc = -errno;
    return rc < 0 ? rc : status;
}

bool launch_helper_works(const char *program, struct dd_err *err)
{
    char said[sizeof(err->text)] = "";
    int rc = ask(program, "--check", said, sizeof(said));
    if (rc < 0)
        (void)dd_err_set(err, -ENOENT, "cannot run %s: %s", program, strerror(-rc));
    else if (rc > 0 && said[0] != '\0')
        (void)dd_err_set(err, -ENOENT, "%s", said);
    else if (rc > 0)
        (void)dd_err_set(err, -ENOENT, "'%s --check' failed without a message (%s %d)", program,
                         WIFSIGNALED(rc) ? "signal" : "exit status",
                         WIFSIGNALED(rc) ? WTERMSIG(rc) : WEXITSTATUS(rc));
    return rc == 0;
}

static bool find_program(char out[PATH_MAX], const struct starter *st, struct dd_err *err)
{
    if (st->ours)
        return dd_installed_find(out, st->program, PKGLIBEXECDIR) && launch_helper_works(out, err);
    /* search the standard directories if the shell has not exported its PATH */
    const char *path = dd_env_get_nonempty(environ, "PATH");
    for (const char *s = path != NULL ? path : _PATH_STDPATH; *s != '\0'; s += *s == ':') {
        size_t n = strcspn(s, ":");
        if (n > 0 && is_there(out, s, n, st->program))
            return true;
        s += n;
    }
    return st->directory != NULL &&
           is_there(out, st->directory, strlen(st->directory), st->program);
}

int launch_command_check(const char *words, struct dd_err *err)
{
    return words == NULL || words[strspn(words, " \t\n")] != '\0'
               ? 0
               : dd_err_set(err, -EINVAL,
                            "--launch-command is empty; expected a command such as 'ssh -p 2222'");
}

const struct starter *launch_find(char program[PATH_MAX], const char *name, const struct alloc *a,
                                  const char *words, struct dd_err *err)
{
    const struct starter *st = NULL;
    program[0] = '\0';
    while ((st = starter_find(st, name, a->source)) != NULL)
        if (words != NULL || find_program(program, st, err))
            return st;
    return NULL;
}
