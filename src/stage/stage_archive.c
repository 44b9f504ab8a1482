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

enum { BUFFER = 2 * STAGE_RAW_MAX, PIPE_SIZE = 1 << 20 };

struct unpacking_archive {
    int from;          /* pipe of ddrun-archive */
    struct dd_buf raw; /* the chunk that is being filled */
    enum stage_phase phase;
    struct stage_entry entry;
    unsigned char *data; /* [BUFFER]: bytes read from the pipe */
    size_t at, len;      /* used and read bytes of data */
    stage_archive_emit *emit;
    void *arg;
    struct dd_err *err;
};

/* Find ddrun-archive in the directory of this program. */
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
        return dd_err_set(
            err, -ENOENT,
            "--stage: cannot find the directory of ddrun-stage, which contains ddrun-archive");
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

static int flush_chunk(struct unpacking_archive *u)
{
    if (u->raw.len == 0)
        return 0;
    struct dd_buf full = u->raw;
    u->raw = DD_BUF_INIT(STAGE_RAW_MAX);
    return u->emit(u->arg, u->phase, &full);
}

static int take_record(struct unpacking_archive *u, const unsigned char *record, size_t n)
{
    size_t at = 0;
    if (stage_entry_decode(&u->entry, record, n, &at) != 1 || at != n)
        return dd_err_set(u->err, -EPROTO, "--stage: ddrun-archive sent malformed data");
    const enum stage_phase phase = stage_phase_of(u->entry.kind);
    int rc = 0;
    if (phase != u->phase || u->raw.len + n > STAGE_RAW_MAX)
        rc = flush_chunk(u);
    u->phase = phase;
    if (rc == 0 && (rc = dd_buf_append(&u->raw, record, n)) < 0)
        (void)dd_err_set(u->err, rc, "--stage: out of memory");
    return rc;
}

/* Read until n bytes of the pipe are at u->data + u->at. */
static bool fill(struct unpacking_archive *u, size_t n)
{
    if (u->len - u->at < n) {
        memmove(u->data, u->data + u->at, u->len - u->at);
        u->len -= u->at;
        u->at = 0;
    }
    while (u->len - u->at < n) {
        const ssize_t k = read(u->from, u->data + u->len, BUFFER - u->len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        u->len += (size_t)k;
    }
    return true;
}

/* Read the error message, which is the rest of the output. */
static int take_failure(struct unpacking_archive *u)
{
    char text[500];
    while (u->len - u->at < sizeof(text) && fill(u, u->len - u->at + 1))
        ;
    const size_t n = u->len - u->at;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(n < sizeof(text) ? n : sizeof(text)),
                   (const char *)u->data + u->at);
    stage_printable(text);
    return dd_err_set(u->err, -EIO, "%s", text);
}

static int read_records(struct unpacking_archive *u)
{
    for (;;) {
        if (!fill(u, 4))
            return -ECHILD;
        struct dd_rd r = dd_rd_of(u->data + u->at, 4);
        const uint32_t n = dd_rd_u32(&r);
        u->at += 4;
        if (n == 0)
            return flush_chunk(u);
        if (n == UINT32_MAX)
            return take_failure(u);
        if (n > STAGE_RAW_MAX || !fill(u, n))
            return dd_err_set(u->err, -EPROTO,
                              "--stage: ddrun-archive sent malformed or incomplete data");
        const int rc = take_record(u, u->data + u->at, n);
        if (rc < 0)
            return rc;
        u->at += n;
    }
}

/* Emit the top directory, below which all other entries lie. */
static int put_top(struct unpacking_archive *u, int number)
{
    u->entry = (struct stage_entry){.kind = STAGE_DIR, .mode = 0755};
    (void)snprintf(u->entry.path, sizeof(u->entry.path), "%d", number);
    u->phase = STAGE_DIRECTORIES;
    const int rc = stage_entry_encode(&u->raw, &u->entry);
    return rc == 0 ? 0 : dd_err_set(u->err, rc, "--stage: out of memory");
}

static struct unpacking_archive *unpacking_new(void)
{
    struct unpacking_archive *u = calloc(1, sizeof(*u));
    unsigned char *data = malloc(BUFFER);
    if (u == NULL || data == NULL) {
        free(u);
        free(data);
        return NULL;
    }
    u->raw = DD_BUF_INIT(STAGE_RAW_MAX);
    u->data = data;
    return u;
}

/* Describe the end of a ddrun-archive that has sent neither its last record nor an error. */
static int explain_end(const struct stage_source *source, int status, struct dd_err *err)
{
    return WIFSIGNALED(status)
               ? dd_err_set(err, -EIO,
                            "--stage: ddrun-archive was killed by signal %d (%s) reading '%s'",
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
    struct unpacking_archive *u = unpacking_new();
    if (u == NULL || pipe2(ends, O_CLOEXEC) < 0) {
        free(u != NULL ? u->data : NULL);
        free(u);
        return dd_err_set(err, -ENOMEM, "--stage: cannot read '%s': %m", source->path);
    }
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    u->from = ends[0];
    u->emit = emit;
    u->arg = arg;
    u->err = err;
    int rc = start_helper(&pid, ends, source, number, err);
    rc = rc == 0 ? put_top(u, number) : rc;
    rc = rc == 0 ? read_records(u) : rc;
    close(ends[0]);
    if (pid > 0 && rc < 0)
        (void)kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == -ECHILD)
        rc = explain_end(source, status, err);
    dd_buf_done(&u->raw);
    free(u->data);
    free(u);
    return rc;
}
