#include "stage/stage_enter.h"

#include "base/io.h"
#include "base/log.h"
#include "stage/stage_client.h"
#include "stage/stage_env.h"
#include "stage/stage_msg.h"
#include "stage/stage_view.h"
#include "worker/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CANNOT_RUN = 126, NOT_FOUND = 127 };

/* Receive READY or WITHOUT. Returns the number of descriptors, or < 0. */
static int receive(int fd, struct stage_msg *m, int fds[STAGE_CLIENT_FDS])
{
    int rc;
    do
        rc = stage_client_receive(fd, m, fds);
    while (rc == -EAGAIN);
    return rc < 0 || m->type == STAGE_MSG_READY || m->type == STAGE_MSG_WITHOUT ? rc : -EPROTO;
}

/* On rank 0, warn of each directory that does not exist and that neither a variable nor the command
 * line names: the workers do not find its copy, usually that of an archive. */
static void name_unused(const struct dd_log *log, char *const *env, char *const *argv,
                        char *const *pairs)
{
    const char *rank = dd_env_get(env, "RANK");
    if (rank == NULL || strcmp(rank, "0") != 0)
        return;
    for (; pairs[0] != NULL; pairs += 2)
        if (access(pairs[0], F_OK) < 0 && errno == ENOENT && !stage_env_names(pairs[0], env, argv))
            dd_log(
                log, DD_LOG_WARN,
                "--stage: the directory '%s' does not exist, and neither a variable nor the "
                "command line names it, so the workers do not find its copy in '%s'"
                "\n  tip: name the directory in PATH, PYTHONPATH, LD_LIBRARY_PATH, VIRTUAL_ENV or "
                "CONDA_PREFIX; or create it on each node, if copies can be mounted there",
                pairs[0], pairs[1]);
}

static int point_to_copy(struct dd_strv *env, struct dd_strv *argv, char *const *pairs)
{
    const int rc = stage_env_vars(env, pairs);
    return rc == 0 ? stage_env_argv(argv, pairs) : rc;
}

static int run_program(const struct dd_strv *argv, const struct dd_strv *env, struct dd_err *err)
{
    DD_AUTO(free) char *path = NULL;
    struct spawn_report r = {.stage = SPAWN_EXEC};
    const int rc = spawn_lookup(&path, argv->v[0], env->v);
    if (rc < 0) {
        errno = -rc;
        return dd_err_set(err, rc, "cannot run '%s': %m", argv->v[0]);
    }
    execve(path, argv->v, env->v);
    r.error = errno;
    return spawn_explain(&r, path, NULL, err);
}

int stage_enter(int fd, char **args)
{
    const struct dd_log log = {.level = DD_LOG_WARN, .fd = STDERR_FILENO, .who = "ddrun"};
    const pid_t agent = getppid();
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(strv) struct dd_strv argv = {0};
    struct dd_err err = {0};
    int fds[STAGE_CLIENT_FDS];
    const int n = receive(fd, &m, fds);
    if (n < 0) /* the agent has reported why there is no copy */
        return CANNOT_RUN;
    close(fd);
    int rc = dd_strv_copy(&env, environ);
    if (rc == 0)
        rc = dd_strv_copy(&argv, args);
    if (m.type == STAGE_MSG_WITHOUT)
        stage_env_without(&env, m.texts.v[0]);
    else if (rc == 0 && n == 0) {
        name_unused(&log, env.v, argv.v, m.texts.v + STAGE_READY_PAIRS);
        rc = point_to_copy(&env, &argv, m.texts.v + STAGE_READY_PAIRS);
    }
    if (rc < 0)
        (void)dd_err_set(&err, rc, "out of memory");
    if (rc == 0 && n > 0)
        rc = stage_view_enter(fds, n, &err);
    /* entering a user namespace may have cleared PR_SET_PDEATHSIG */
    if (rc == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != agent))
        return CANNOT_RUN;
    if (rc == 0)
        rc = run_program(&argv, &env, &err);
    dd_log(&log, DD_LOG_ERR, "%s", err.text);
    return rc == -ENOENT ? NOT_FOUND : CANNOT_RUN;
}
