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
#include <time.h>
#include <unistd.h>

/* Maximum age of a dump that PyTorch has written without a request: an older one is of another
 * failure. */
enum { FRESH_S = 60 };

struct flight_rank {
    bool asked; /* a request is pending */
    bool known; /* record is the worker's answer to the last request */
    off_t size; /* size of an incomplete answer at the last check; 0: none seen */
    struct flight_record record;
};

struct flight_recorder {
    char name[32]; /* name of this round's directory below the private directory */
    int dir;
    struct flight_rank *ranks; /* by local rank */
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

static int flight_read_file(int fd, size_t size, struct flight_record *ret)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(PICKLE_MAX + 1);
    int rc = dd_buf_reserve(&text, size);
    ssize_t n = rc == 0 ? pread(fd, text.data, size, 0) : rc;
    return n < 0 ? rc < 0 ? rc : -errno : flight_record_read(ret, text.data, (size_t)n);
}

static int flight_open(const struct flight_recorder *f, const char *name, struct stat *ret)
{
    int fd = openat(f->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (fstat(fd, ret) == 0 && S_ISREG(ret->st_mode) && ret->st_size <= PICKLE_MAX)
        return fd;
    (void)close(fd);
    return -EPROTO;
}

/* Read the answer of a worker, and remove the file, which would otherwise pass for the answer to
 * the next request. False: the answer is incomplete or missing. */
static bool flight_take_answer(const struct flight_recorder *f, const struct round *r,
                               int local_rank)
{
    struct flight_rank *rank = &f->ranks[local_rank];
    struct stat st;
    char name[48];
    flight_file(name, sizeof(name), "rank_", r, local_rank, "");
    DD_AUTO(fd) int fd = flight_open(f, name, &st);
    if (fd < 0 || st.st_size == rank->size) /* nothing new */
        return false;
    rank->size = st.st_size;
    if (flight_read_file(fd, (size_t)st.st_size, &rank->record) < 0)
        return false;
    (void)unlinkat(f->dir, name, 0);
    rank->known = true;
    return true;
}

/* Read a dump that PyTorch has written by itself, shortly before the worker aborts. */
static int flight_read_own(const struct flight_recorder *f, const struct round *r, const char *what,
                           int local_rank, struct flight_record *ret)
{
    struct stat st;
    char name[48];
    flight_file(name, sizeof(name), what, r, local_rank, "");
    DD_AUTO(fd) int fd = flight_open(f, name, &st);
    if (fd < 0)
        return fd;
    return time(NULL) - st.st_mtime > FRESH_S ? -ESTALE
                                              : flight_read_file(fd, (size_t)st.st_size, ret);
}

/* ---- asking ---- */

/* Ask a worker for its record. PyTorch keeps the pipe open for reading, so the open does not fail
 * with ENXIO. */
static bool flight_ask_worker(const struct flight_recorder *f, const struct round *r,
                              int local_rank)
{
    char pipe[48];
    struct stat st;
    flight_file(pipe, sizeof(pipe), "pipe_", r, local_rank, ".pipe");
    DD_AUTO(fd) int fd = openat(f->dir, pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && write(fd, "1\n", 2) == 2;
}

/* False if the worker has ended, also while it is a zombie, which does not answer. */
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
        const bool late = f->ranks[i].asked;
        f->ranks[i] = (struct flight_rank){0};
        if (!flight_is_alive(r, i))
            continue;
        if (late) /* a file would be the answer to the previous request */
            (void)unlinkat(f->dir, now, 0);
        else /* keep the last record: a worker that aborts may not answer */
            (void)renameat(f->dir, now, f->dir, before);
        f->ranks[i].asked = flight_ask_worker(f, r, i);
    }
}

bool flight_recorder_is_ready(const struct round *r)
{
    const struct flight_recorder *f = features_state(r, &flight_recorder_feature);
    bool ready = true;
    for (int i = 0; f != NULL && i < r->plan.local_size; i++) {
        struct flight_rank *rank = &f->ranks[i];
        if (rank->asked && (flight_take_answer(f, r, i) || !flight_is_alive(r, i)))
            rank->asked = false;
        ready = ready && !rank->asked;
    }
    return ready;
}

int flight_recorder_read(const struct round *r, int local_rank, struct flight_record *ret)
{
    const struct flight_recorder *f = features_state(r, &flight_recorder_feature);
    if (f == NULL)
        return -ENOENT;
    if (f->ranks[local_rank].known) {
        *ret = f->ranks[local_rank].record;
        return 0;
    }
    int rc = flight_read_own(f, r, "rank_", local_rank, ret);
    return rc < 0 ? flight_read_own(f, r, "before_", local_rank, ret) : rc;
}

/* ---- hooks ---- */

static void flight_free(struct flight_recorder *f)
{
    if (f->dir >= 0)
        close(f->dir);
    free(f->ranks);
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
    f->ranks = calloc((size_t)r->plan.local_size + 1, sizeof(*f->ranks));
    (void)snprintf(f->name, sizeof(f->name), "flight_%d", r->plan.round);
    if (f->ranks != NULL && dd_scratch_mkdir(tmp, f->name, err) == 0)
        f->dir = openat(tmp->fd, f->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (f->dir >= 0) {
        *state = f;
        return 0;
    }
    dd_log(r->cfg->log, DD_LOG_INFO,
           "cannot record collectives: no private directory for PyTorch's flight recorder: %s",
           err->text[0] != '\0' ? err->text : strerror(errno));
    flight_free(f);
    err->text[0] = '\0';
    return 0;
}

/* Keep values that the user has set: the user then reads the files. */
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
