#include "stage/stage_archive.h"

#include "base/auto.h"
#include "base/cursor.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPE_SIZE = 1 << 20 };

struct unpacking_archive {
    int from; /* pipe of ddrun-archive */
    stage_archive_emit *emit;
    void *arg;
    struct dd_err *err;
};

/* Set ret to the path of ddrun-archive, which is in the directory of this program. False: errno of
 * readlink() is set. */
static bool find_helper(char ret[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 32);
    ret[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash == NULL)
        return false;
    return snprintf(slash + 1, 32, "ddrun-archive") > 0;
}

static int start_helper(pid_t *ret, int ends[2], const struct stage_source *source, int number,
                        struct dd_err *err)
{
    char helper[PATH_MAX];
    char digits[16];
    const char *slash = strrchr(source->name, '/');
    char name[STAGE_PATH_MAX + 1];
    posix_spawn_file_actions_t to;
    if (!find_helper(helper))
        return dd_err_set(err, -ENOENT,
                          "--stage: cannot find ddrun-archive: cannot read '/proc/self/exe': %m");
    (void)snprintf(digits, sizeof(digits), "%d", number);
    (void)snprintf(name, sizeof(name), "%s", slash != NULL ? slash + 1 : source->name);
    char *argv[] = {helper, source->path, digits, name, NULL};
    (void)posix_spawn_file_actions_init(&to);
    (void)posix_spawn_file_actions_adddup2(&to, ends[1], STDOUT_FILENO);
    const int rc = -posix_spawn(ret, helper, &to, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&to);
    close(DD_TAKE_FD(ends[1]));
    return rc == 0 ? 0 : dd_err_set(err, rc, "--stage: cannot run '%s': %s", helper, strerror(-rc));
}

/* Read the error message, which is the rest of the output. */
static int take_failure(const struct unpacking_archive *u)
{
    char text[500];
    size_t n = 0;
    ssize_t k;
    while (n < sizeof(text) - 1 && (k = read(u->from, text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = '\0';
    stage_printable(text);
    return dd_err_set(u->err, -EIO, "%s", text);
}

/* The entries are verified when they are unpacked. */
static int take_chunk(const struct unpacking_archive *u, uint8_t phase, uint32_t n)
{
    struct dd_buf raw = DD_BUF_INIT(STAGE_RAW_MAX);
    if (n > STAGE_RAW_MAX || phase >= STAGE_PHASES)
        return dd_err_set(u->err, -EPROTO, "--stage: ddrun-archive sent malformed data");
    if (dd_buf_reserve(&raw, n) < 0)
        return dd_err_set(u->err, -ENOMEM, "--stage: out of memory");
    if (dd_read_full(u->from, raw.data, n) < 0) {
        dd_buf_done(&raw);
        return -ECHILD;
    }
    raw.len = n;
    return u->emit(u->arg, phase, &raw);
}

static int read_chunks(const struct unpacking_archive *u)
{
    unsigned char head[STAGE_ARCHIVE_HEAD];
    int rc = 0;
    while (rc == 0) {
        if (dd_read_full(u->from, head, sizeof(head)) < 0)
            return -ECHILD;
        struct dd_rd r = dd_rd_of(head, sizeof(head));
        const uint32_t n = dd_rd_u32(&r);
        if (n == 0)
            return 0;
        if (n == UINT32_MAX)
            return take_failure(u);
        rc = take_chunk(u, dd_rd_u8(&r), n);
    }
    return rc;
}

/* Emit the top directory, below which all other entries lie. */
static int put_top(const struct unpacking_archive *u, int number)
{
    struct dd_buf raw = DD_BUF_INIT(STAGE_RAW_MAX);
    struct stage_entry *top = calloc(1, sizeof(*top));
    int rc = -ENOMEM;
    if (top != NULL) {
        top->kind = STAGE_DIR;
        top->mode = 0755;
        (void)snprintf(top->path, sizeof(top->path), "%d", number);
        rc = stage_entry_encode(&raw, top);
    }
    free(top);
    return rc == 0 ? u->emit(u->arg, STAGE_DIRECTORIES, &raw)
                   : dd_err_set(u->err, rc, "--stage: out of memory");
}

/* Describe the end of a ddrun-archive that has sent neither its last record nor an error. */
static int explain_end(const struct stage_source *source, int status, struct dd_err *err)
{
    return WIFSIGNALED(status)
               ? dd_err_set(
                     err, -EIO,
                     "--stage: ddrun-archive was killed by signal %d (%s) while it read '%s'",
                     WTERMSIG(status), strsignal(WTERMSIG(status)), source->path)
               : dd_err_set(err, -EIO,
                            "--stage: ddrun-archive exited with status %d before the end of '%s'",
                            WEXITSTATUS(status), source->path);
}

int stage_archive_read(const struct stage_source *source, int number, stage_archive_emit *emit,
                       void *arg, struct dd_err *err)
{
    int ends[2];
    int status = 0;
    pid_t pid = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "--stage: cannot read '%s': %m", source->path);
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    const struct unpacking_archive u = {.from = ends[0], .emit = emit, .arg = arg, .err = err};
    int rc = start_helper(&pid, ends, source, number, err);
    rc = rc == 0 ? put_top(&u, number) : rc;
    rc = rc == 0 ? read_chunks(&u) : rc;
    close(ends[0]);
    if (pid > 0 && rc < 0)
        (void)kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == -ECHILD)
        rc = explain_end(source, status, err);
    return rc;
}
