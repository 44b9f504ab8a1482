#include "agent/flight_recorder.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "base/scratch.h"
#include "report/pickle.h"
#include "worker/children.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct flight_recorder {
    char name[32]; /* of the directory of this round, below the private directory */
    int dir;
    bool *asked; /* by local rank */
};

static const struct dd_scratch *flight_tmp(const struct round *r)
{
    return r->cfg->flight.tmp;
}

/* Src: torch 2.11: the rank follows the name of the file, and ".pipe" follows the rank. */
static void flight_file(char *out, size_t size, const char *what, const struct round *r,
                        int local_rank, const char *end)
{
    (void)snprintf(out, size, "%s%d%s", what, r->plan.first_rank + local_rank, end);
}

/* ---- reading ---- */

static int flight_read_file(int fd, struct dd_buf *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > PICKLE_MAX)
        return -EPROTO;
    int rc = dd_buf_reserve(out, (size_t)st.st_size);
    ssize_t n = rc == 0 ? pread(fd, out->data, (size_t)st.st_size, 0) : 0;
    if (n < 0)
        return -errno;
    out->len = rc == 0 ? (size_t)n : 0;
    return rc;
}

static int flight_read(const struct flight_recorder *f, const struct round *r, const char *what,
                       int local_rank, struct flight_record *ret)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(PICKLE_MAX + 1);
    char name[48];
    flight_file(name, sizeof(name), what, r, local_rank, "");
    DD_AUTO(fd) int fd = openat(f->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int rc = flight_read_file(fd, &text);
    return rc < 0 ? rc : flight_record_read(ret, text.data, text.len);
}

/* ---- asking ---- */

/* PyTorch keeps the pipe open for reading. */
static bool flight_ask_worker(const struct flight_recorder *f, const struct round *r,
                              int local_rank)
{
    char pipe[48];
    struct stat st;
    flight_file(pipe, sizeof(pipe), "pipe_", r, local_rank, ".pipe");
    DD_AUTO(fd) int fd = openat(f->dir, pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && write(fd, "1\n", 2) == 2;
}

/* A worker that has ended answers no more, even if its exit has not been handled yet. */
static bool flight_is_alive(const struct round *r, int local_rank)
{
    char kernel[64];
    const pid_t pid = r->group != NULL ? worker_group_pid(r->group, local_rank) : 0;
    return pid > 0 && strchr("ZX?", children_state(pid, kernel, sizeof(kernel))[0]) == NULL;
}

void flight_recorder_ask(const struct round *r)
{
    struct flight_recorder *f = features_state(r, &flight_recorder_feature);
    for (int i = 0; f != NULL && i < r->plan.local_size; i++) {
        char now[48], before[48];
        flight_file(now, sizeof(now), "rank_", r, i, "");
        flight_file(before, sizeof(before), "before_", r, i, "");
        f->asked[i] = flight_is_alive(r, i) && flight_ask_worker(f, r, i);
        if (f->asked[i]) /* kept: a worker that aborts may not answer any more */
            (void)renameat(f->dir, now, f->dir, before);
    }
}

bool flight_recorder_is_ready(const struct round *r)
{
    const struct flight_recorder *f = features_state(r, &flight_recorder_feature);
    struct flight_record record;
    for (int i = 0; f != NULL && i < r->plan.local_size; i++) {
        if (f->asked[i] && flight_is_alive(r, i) && flight_read(f, r, "rank_", i, &record) < 0)
            return false;
        f->asked[i] = false;
    }
    return true;
}

int flight_recorder_read(const struct round *r, int local_rank, struct flight_record *ret)
{
    const struct flight_recorder *f = features_state(r, &flight_recorder_feature);
    if (f == NULL)
        return -ENOENT;
    int rc = flight_read(f, r, "rank_", local_rank, ret);
    return rc < 0 ? flight_read(f, r, "before_", local_rank, ret) : rc;
}

/* ---- hooks ---- */

static void flight_free(struct flight_recorder *f)
{
    if (f->dir >= 0)
        close(f->dir);
    free(f->asked);
    free(f);
}

/* Without a directory the feature takes no part. */
static int flight_prepare(void **state, const struct round *r, struct dd_err *err)
{
    const struct dd_scratch *tmp = flight_tmp(r);
    if (tmp == NULL || tmp->path == NULL)
        return 0;
    struct flight_recorder *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    f->dir = -1;
    f->asked = calloc((size_t)r->plan.local_size + 1, sizeof(*f->asked));
    (void)snprintf(f->name, sizeof(f->name), "flight_%d", r->plan.round);
    if (f->asked != NULL && dd_scratch_mkdir(tmp, f->name, err) == 0)
        f->dir = openat(tmp->fd, f->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (f->dir >= 0) {
        *state = f;
        return 0;
    }
    dd_log(r->cfg->log, DD_LOG_INFO,
           "cannot record collectives: no private directory for PyTorch's flight "
           "recorder");
    flight_free(f);
    err->text[0] = '\0';
    return 0;
}

/* Keep what the user has set: he reads the files himself. */
static int flight_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    const struct flight_recorder *f = state;
    const char *path = flight_tmp(r)->path;
    (void)local_rank;
    if (dd_env_get(spec->env.v, "TORCH_FR_DUMP_TEMP_FILE") != NULL ||
        dd_env_get(spec->env.v, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") != NULL ||
        dd_env_get(spec->env.v, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE") != NULL)
        return 0;
    int rc = dd_env_setf(&spec->env, "TORCH_FR_DUMP_TEMP_FILE", "%s/%s/rank_", path, f->name);
    return rc < 0 ? rc
                  : dd_env_setf(&spec->env, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "%s/%s/pipe_", path,
                                f->name);
}

static void flight_end(void *state, const struct round *r)
{
    struct flight_recorder *f = state;
    (void)dd_scratch_clear(flight_tmp(r), f->name);
    flight_free(f);
}

const struct round_feature flight_recorder_feature = {
    .name = "flight-recorder",
    .prepare = flight_prepare,
    .worker_env = flight_env,
    .end = flight_end,
};
