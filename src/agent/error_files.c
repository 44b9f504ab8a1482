#include "agent/error_files.h"

#include "agent/agent.h"
#include "agent/error_names.h"
#include "agent/spec.h"
#include "base/auto.h"
#include "base/io.h"
#include "worker/aside.h"
#include "worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ERROR_FILE_MAX = 1 << 20 };

struct error_file {
    int fd;
    char *path;
};

struct error_files {
    struct error_file *v;
    int n;
    bool over; /* ignore further failures: one was recorded, or the round is being stopped */
    char *kept;
    int kept_code; /* exit code; negative: the signal, as in Python */
};

static void files_clear(struct error_files *ef)
{
    for (int i = 0; i < ef->n; i++) {
        if (ef->v[i].fd >= 0)
            close(ef->v[i].fd);
        free(ef->v[i].path);
    }
    free(ef->v);
    free(ef->kept);
    *ef = (struct error_files){0};
}

static bool no_error_files(const char *log_dir)
{
    return log_dir != NULL && strcmp(log_dir, "/dev/null") == 0;
}

static int file_make(struct error_file *f, int i, const char *logged, const struct agent_cfg *cfg)
{
    char name[64] = "";
    f->fd = -1;
    if (*logged != '\0' || no_error_files(cfg->output.log_dir)) {
        f->path = strdup(logged);
    } else if (cfg->error_names->dir != NULL) {
        f->path = error_names_path(cfg->error_names, i);
    } else {
        f->fd = memfd_create("error.json", MFD_CLOEXEC);
        if (f->fd >= 0)
            (void)snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), f->fd);
        f->path = strdup(name);
    }
    return f->path == NULL ? -ENOMEM : 0;
}

static int error_files_create(void **state, const struct round *r, struct dd_err *err)
{
    (void)r;
    *state = calloc(1, sizeof(struct error_files));
    return *state != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

static int error_files_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct error_files *ef = *state;
    const int n = r->plan.local_size;
    int rc = 0;
    files_clear(ef);
    error_names_next(r->cfg->error_names);
    ef->v = calloc((size_t)n, sizeof(*ef->v));
    for (int i = 0; ef->v != NULL && i < n && rc == 0; i++) {
        rc = file_make(&ef->v[i], i,
                       r->output != NULL ? worker_output_error_file(r->output, i) : "", r->cfg);
        ef->n = i + 1;
    }
    return ef->v == NULL || rc < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

static void error_files_input(void *state, const struct round *r, struct spec_input *in)
{
    const struct error_files *ef = state;
    (void)r;
    in->error_file = ef->v[in->local_rank].path;
}

/* The round is being stopped: workers that fail from now on are not the cause. */
static void error_files_stopping(void *state, const struct round *r)
{
    struct error_files *ef = state;
    (void)r;
    ef->over = true;
}

static void error_files_exit(void *state, const struct round *r, struct worker_end *end)
{
    const struct error_files *ef = state;
    (void)r;
    end->error_file = ef->v[end->exit.local_rank].path;
}

/* Keep the content of the error file of the round's first failed worker. */
static void error_files_verdict(void *state, const struct round *r, const struct worker_end *end)
{
    struct error_files *ef = state;
    const struct worker_exit *e = &end->exit;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(2 * ERROR_FILE_MAX);
    (void)r;
    if (e->code == 0 || end->settling || ef->over)
        return;
    ef->over = true;
    ef->kept_code = e->signal > 0 ? -e->signal : e->code;
    if (end->error_file[0] == '\0' || aside_read_end(end->error_file, ERROR_FILE_MAX, &b) < 0 ||
        b.len == 0)
        return;
    const char *text = dd_buf_str(&b);
    ef->kept = text != NULL ? strdup(text) : NULL;
}

static void error_files_destroy(void *state)
{
    files_clear(state);
    free(state);
}

const struct round_feature error_files_feature = {
    .name = "error-files",
    .create = error_files_create,
    .prepare = error_files_prepare,
    .spec_input = error_files_input,
    .stopping = error_files_stopping,
    .worker_exit = error_files_exit,
    .verdict = error_files_verdict,
    .destroy = error_files_destroy,
};

/* ---- the copy ---- */

/* Insert the exit code into {"message": {...}}: a worker killed by a signal cannot write it. */
static char *with_code(const char *text, int code)
{
    json_t *o = json_loads(text, 0, NULL);
    json_t *message = json_object_get(o, "message");
    if (json_is_object(message))
        (void)json_object_set_new(message, "errorCode", json_integer(code));
    char *ret = o != NULL ? json_dumps(o, 0) : NULL;
    json_decref(o);
    return ret;
}

void error_files_copy(const struct round *r, const char *path)
{
    const struct error_files *ef = r != NULL ? features_state(r, &error_files_feature) : NULL;
    if (ef == NULL || ef->kept == NULL || path == NULL)
        return;
    DD_AUTO(free) char *text = with_code(ef->kept, ef->kept_code);
    if (text == NULL) {
        dd_log(r->cfg->log, DD_LOG_WARN,
               "the failed worker's error file is not valid JSON; not copied to "
               "TORCHELASTIC_ERROR_FILE=%.300s",
               path);
        return;
    }
    DD_AUTO(fd) int fd = dd_open_unplanted(path, O_WRONLY | O_CREAT, 0666);
    int rc = fd < 0 ? fd : 0;
    if (rc == 0 && ftruncate(fd, 0) < 0 && errno != EINVAL) /* EINVAL: a pipe or device */
        rc = -errno;
    if (rc == 0)
        rc = dd_write_full(fd, text, strlen(text));
    if (rc < 0)
        dd_log(r->cfg->log, DD_LOG_WARN, "cannot write TORCHELASTIC_ERROR_FILE=%.300s: %s", path,
               strerror(-rc));
}
