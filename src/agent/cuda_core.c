#include "agent/cuda_core.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "base/scratch.h"
#include "worker/children.h"
#include "worker/command.h"
#include "worker/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CORES_MAX = 256,  /* maximum number of dumps of a node */
    LIMIT_MS = 60000, /* time limit for all dumps of a node */
    CHILD_MS = 2000,  /* additional time for the child to report complete dumps */
    LOOK_MS = 200,
    UNREADABLE_LOOKS = 25, /* checks without growth after which a dump counts as complete, if the
                              open files of its process cannot be read */
    NO_PIPE = 2,           /* exit status of the child: no worker has a pipe */
    FILES_TEXT = 3000,     /* bytes of the lines for the report */
    PIPE_NAME = 64,
};

/* A process with a pipe. */
struct core {
    int local_rank, pid;
    off_t size; /* size of the dump when last checked; -1: no file */
    int same;   /* number of checks since the dump last grew */
    bool complete, ended;
};

struct cuda_core {
    const struct round *round;
    char name[32]; /* name of this round's directory below the private directory */
    bool on;       /* the feature takes part in this round */
    bool asked;
    struct command *command;
    struct dd_buf files;
};

/* ---- the child ---- */

/* Write the path of a dump, beside the log files of the worker. -ENOENT: the worker has no log
 * files, or the current directory is unknown. */
static int core_path(const struct round *r, int local_rank, const char *pid, struct dd_buf *out)
{
    const char *log = r->output != NULL ? worker_output_error_file(r->output, local_rank) : "";
    const char *slash = strrchr(log, '/');
    char here[PATH_MAX] = "";
    dd_buf_clear(out);
    if (slash == NULL || (log[0] != '/' && getcwd(here, sizeof(here)) == NULL))
        return -ENOENT;
    return dd_buf_printf(out, "%s%s%.*s/cuda_core.%s", here, here[0] != '\0' ? "/" : "",
                         (int)(slash - log), log, pid);
}

/* Write the path of the private directory of the pipes. */
static void core_pipes(const struct cuda_core *s, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s/%s", s->round->cfg->cuda_core.tmp->path, s->name);
}

/* Write to a pipe. False: no process reads it. */
static bool core_trigger(int dir, const char *name)
{
    struct stat st;
    DD_AUTO(fd) int fd = openat(dir, name, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_uid == geteuid() &&
           write(fd, "1", 1) == 1;
}

/* Parse "pipe_LOCALRANK.PID". */
static bool core_parse(const char *name, struct core *ret)
{
    char local[16] = "";
    const char *dot = strchr(name, '.');
    *ret = (struct core){.size = -1};
    if (strncmp(name, "pipe_", 5) != 0 || dot == NULL || dot - (name + 5) >= (int)sizeof(local))
        return false;
    memcpy(local, name + 5, (size_t)(dot - (name + 5)));
    return dd_num_int(local, 0, INT_MAX, &ret->local_rank) == 0 &&
           dd_num_int(dot + 1, 1, INT_MAX, &ret->pid) == 0;
}

static int core_trigger_all(const struct cuda_core *s, struct core v[CORES_MAX])
{
    int n = 0;
    char path[PATH_MAX];
    const struct dirent *e;
    core_pipes(s, path);
    DIR *dir = opendir(path);
    while (dir != NULL && n < CORES_MAX && (e = readdir(dir)) != NULL)
        if (core_parse(e->d_name, &v[n]) && core_trigger(dirfd(dir), e->d_name))
            n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* True if the process has ended, also while it is a zombie. */
static bool core_has_ended(int pid)
{
    const char state = children_state_letter(pid);
    return state == 'Z' || state == 'X' || (kill(pid, 0) < 0 && errno == ESRCH);
}

/* Returns 1 if the process has this file open, 0 if not, -ESRCH if the process has ended, -EACCES
 * if unknown. */
static int core_is_open(int pid, const struct stat *file)
{
    char path[PIPE_NAME];
    struct stat st;
    int rc = 0;
    const struct dirent *e;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        rc = -EACCES;
    while (dir != NULL && rc != 1 && (e = readdir(dir)) != NULL)
        if (fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
            rc = errno == EACCES ? -EACCES : rc;
        else if (st.st_ino == file->st_ino && st.st_dev == file->st_dev)
            rc = 1;
    if (dir != NULL)
        closedir(dir);
    return rc != 1 && core_has_ended(pid) ? -ESRCH : rc; /* an ended process lists no open files */
}

/* A dump is complete when its file is not empty, has not grown since the last check, and is no
 * longer open. The dump of a process that has ended may be truncated, and counts as incomplete. */
static void core_look(const struct round *r, struct core *c)
{
    DD_AUTO(buf) struct dd_buf path = DD_BUF_INIT(PATH_MAX);
    char pid[16];
    struct stat st;
    (void)snprintf(pid, sizeof(pid), "%d", c->pid);
    if (core_path(r, c->local_rank, pid, &path) < 0 || stat(dd_buf_str(&path), &st) < 0 ||
        !S_ISREG(st.st_mode))
        return;
    c->same = st.st_size == c->size ? c->same + 1 : 0;
    c->size = st.st_size;
    if (c->size == 0 || c->same == 0)
        return;
    const int open = core_is_open(c->pid, &st);
    c->ended = open == -ESRCH;
    c->complete = open == 0 || (open == -EACCES && c->same >= UNREADABLE_LOOKS);
}

static bool core_look_all(const struct cuda_core *s, struct core *v, int n)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        if (!v[i].complete && !v[i].ended)
            core_look(s->round, &v[i]);
        all = all && (v[i].complete || v[i].ended || (v[i].size <= 0 && core_has_ended(v[i].pid)));
    }
    return all;
}

/* Print a line about the dump of a process: rank, PID, size and path. */
static void core_print(const struct cuda_core *s, const struct core *c)
{
    DD_AUTO(buf) struct dd_buf path = DD_BUF_INIT(PATH_MAX);
    const struct round *r = s->round;
    const int rank = r->plan.first_rank + c->local_rank;
    char pid[16];
    (void)snprintf(pid, sizeof(pid), "%d", c->pid);
    if (c->size >= 0 && core_path(r, c->local_rank, pid, &path) == 0)
        (void)dprintf(STDOUT_FILENO, "CUDA core dump of rank %d (pid %d, %lld bytes%s): %s\n", rank,
                      c->pid, (long long)c->size,
                      c->complete ? ""
                      : c->ended  ? ", the process has ended"
                                  : ", not complete",
                      dd_buf_str(&path));
    else
        (void)dprintf(STDOUT_FILENO, "CUDA has written no core dump of rank %d (pid %d)\n", rank,
                      c->pid);
}

static int core_in_child(void *arg)
{
    static struct core v[CORES_MAX];
    const struct cuda_core *s = arg;
    const uint64_t limit_ns = dd_now_ns() + LIMIT_MS * DD_NS_PER_MS;
    (void)signal(SIGPIPE, SIG_IGN); /* the reader of a pipe may have exited */
    const int n = core_trigger_all(s, v);
    while (!core_look_all(s, v, n) && dd_now_ns() < limit_ns)
        (void)poll(NULL, 0, LOOK_MS);
    for (int i = 0; i < n; i++)
        core_print(s, &v[i]);
    return n > 0 ? 0 : NO_PIPE;
}

/* ---- the agent ---- */

/* Add a line for the report. Lines that do not fit are in the log only. */
static void core_add_line(struct cuda_core *s, const char *line)
{
    if (s->files.len > 0)
        (void)dd_buf_puts(&s->files, "\n");
    (void)dd_buf_puts(&s->files, line);
}

static void core_log_failure(const struct dd_log *log, int code)
{
    static const char option[] = "--on-hang=cuda-core";
    if (code == COMMAND_TOO_LATE)
        dd_log(log, DD_LOG_WARN, "%s: the dumps took longer than %d s", option,
               (LIMIT_MS + CHILD_MS) / 1000);
    else if (code == NO_PIPE)
        dd_log(log, DD_LOG_WARN, "%s: no worker has a pipe of CUDA's driver", option);
    else if (code != 0)
        dd_log(log, DD_LOG_WARN, "%s: the process that waits for the dumps failed (exit code %d)",
               option, code);
}

static void core_on_done(void *arg, int code, const char *out)
{
    struct cuda_core *s = arg;
    const struct dd_log *log = s->round->cfg->log;
    char line[PATH_MAX];
    const char *next;
    core_log_failure(log, code);
    for (const char *p = code == 0 ? out : ""; *p != '\0'; p = next) {
        const size_t n = strcspn(p, "\n");
        next = p + n + (p[n] == '\n');
        dd_log(log, DD_LOG_NOTICE, "%s", dd_log_escape(line, sizeof(line), p, n));
        core_add_line(s, line);
    }
    command_free(DD_TAKE(s->command));
}

void cuda_core_start(const struct round *r)
{
    struct cuda_core *s = features_state(r, &cuda_core_feature);
    const struct command_spec spec = {
        .run = core_in_child, .run_arg = s, .limit_ms = LIMIT_MS + CHILD_MS};
    struct dd_err err = {0};
    if (s == NULL || !s->on || s->command != NULL || s->asked)
        return;
    s->asked = true;
    if (command_start(&s->command, r->base, &spec, core_on_done, s, &err) == 0)
        round_protect(r, command_pid(s->command));
    else
        dd_log(r->cfg->log, DD_LOG_WARN, "--on-hang=cuda-core: %s", err.text);
}

bool cuda_core_is_ready(const struct round *r)
{
    const struct cuda_core *s = features_state(r, &cuda_core_feature);
    return s == NULL || s->command == NULL;
}

const char *cuda_core_files(const struct round *r)
{
    struct cuda_core *s = features_state(r, &cuda_core_feature);
    const char *text = s != NULL && s->files.len > 0 ? dd_buf_str(&s->files) : NULL;
    return text != NULL ? text : "";
}

/* ---- hooks ---- */

static int core_create(void **state, const struct round *r, struct dd_err *err)
{
    if (r->cfg->cuda_core.tmp == NULL)
        return 0;
    struct cuda_core *s = *state = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->round = r;
    s->files = DD_BUF_INIT(FILES_TEXT);
    return 0;
}

static int core_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct cuda_core *s = *state;
    const struct dd_scratch *tmp = r->cfg->cuda_core.tmp;
    if (s == NULL)
        return 0;
    (void)snprintf(s->name, sizeof(s->name), "cuda_%d", r->plan.round);
    s->asked = s->on = false;
    dd_buf_clear(&s->files);
    if (tmp->path != NULL && strchr(tmp->path, '%') == NULL &&
        dd_scratch_mkdir(tmp, s->name, err) == 0)
        s->on = true;
    else
        dd_log(r->cfg->log, DD_LOG_WARN,
               "--on-hang=cuda-core: no private directory for the pipes of CUDA's driver: %s",
               err->text[0] != '\0' ? err->text
               : tmp->path == NULL  ? "there is no suitable directory for temporary files"
                                    : "its path contains '%'");
    err->text[0] = '\0';
    return 0;
}

/* Src: CUDA driver API, "Coredump Attributes Control API"; CUDA-GDB: %p is the PID. Without
 * skip_abort, the driver would end the process after the dump. */
static int core_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    static const char flags[] = "skip_nonrelocated_elf_images,skip_global_memory,"
                                "skip_shared_memory,skip_local_memory,skip_abort";
    const struct cuda_core *s = state;
    DD_AUTO(buf) struct dd_buf path = DD_BUF_INIT(PATH_MAX);
    char pipes[PATH_MAX];
    core_pipes(s, pipes);
    if (!s->on || core_path(r, local_rank, "%p", &path) < 0)
        return 0;
    int rc = dd_env_setf(&spec->env, "CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1");
    if (rc == 0)
        rc = dd_env_setf(&spec->env, "CUDA_COREDUMP_PIPE", "%s/pipe_%d.%%p", pipes, local_rank);
    if (rc == 0)
        rc = dd_env_setf(&spec->env, "CUDA_COREDUMP_FILE", "%s", dd_buf_str(&path));
    if (rc == 0 && dd_env_get(spec->env.v, "CUDA_COREDUMP_GENERATION_FLAGS") == NULL)
        rc = dd_env_setf(&spec->env, "CUDA_COREDUMP_GENERATION_FLAGS", "%s", flags);
    return rc;
}

static void core_stopping(void *state, const struct round *r)
{
    static const char text[] = "CUDA core dumps of this node may be incomplete: "
                               "the workers ended before all dumps were complete";
    struct cuda_core *s = state;
    if (s->command != NULL) {
        dd_log(r->cfg->log, DD_LOG_WARN, "%s", text);
        core_add_line(s, text);
    }
    command_free(DD_TAKE(s->command));
    s->asked = true;
}

static void core_end(void *state, const struct round *r)
{
    struct cuda_core *s = state;
    core_stopping(s, r);
    if (s->on)
        (void)dd_scratch_clear(r->cfg->cuda_core.tmp, s->name);
    s->on = false;
}

static void core_destroy(void *state)
{
    struct cuda_core *s = state;
    dd_buf_done(&s->files);
    free(s);
}

const struct round_feature cuda_core_feature = {
    .name = "cuda-core",
    .create = core_create,
    .prepare = core_prepare,
    .worker_env = core_env,
    .stopping = core_stopping,
    .end = core_end,
    .destroy = core_destroy,
};
