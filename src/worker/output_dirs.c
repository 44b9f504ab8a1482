#include "worker/output_dirs.h"

#include "base/auto.h"
#include "base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_CHARS = 8, NAME_TRIES = 100, RUN_ID_MAX = 200 };

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Make a directory and its parents. */
static int make_dirs(const char *path, struct dd_err *err)
{
    DD_AUTO(free) char *p = strdup(path);
    if (p == NULL)
        return no_memory(err);
    for (char *slash = p; slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(p, 0777) < 0 && errno != EEXIST)
            return dd_err_set(err, -errno, "cannot create log directory '%s': %m", p);
        if (slash != NULL)
            *slash = '/';
    }
    struct stat st;
    const int rc = stat(path, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "cannot use log directory '%s': %s", path, strerror(-rc));
}

static void random_name(char out[RANDOM_CHARS + 1])
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char b[RANDOM_CHARS] = {0};
    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        for (size_t i = 0; i < sizeof(b); i++) /* weak: make_random() tries several names */
            b[i] = (unsigned char)((uintptr_t)out >> (4 + i) ^ (uintptr_t)getpid() >> i);
    for (size_t i = 0; i < RANDOM_CHARS; i++)
        out[i] = set[b[i] % (sizeof(set) - 1)];
    out[RANDOM_CHARS] = '\0';
}

/* Make a directory PARENT/PREFIX_xxxxxxxx with mode 0700, as torchrun does. */
static int make_random(char **ret, const char *parent, const char *prefix, struct dd_err *err)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        DD_AUTO(free) char *path = NULL;
        char name[RANDOM_CHARS + 1];
        random_name(name);
        if (asprintf(&path, "%s/%.*s_%s", parent, RUN_ID_MAX, prefix, name) < 0)
            return no_memory(err);
        for (char *p = path + strlen(parent) + 1; *p != '\0'; p++)
            if (*p == '/')
                *p = '_';
        if (mkdir(path, 0700) == 0) {
            *ret = DD_TAKE(path);
            return 0;
        }
        if (errno != EEXIST)
            return dd_err_set(err, -errno, "cannot create log directory '%s': %m", path);
    }
    return dd_err_set(err, -EEXIST, "cannot find an unused directory name in '%s'", parent);
}

/* Make a directory below tmp_dir, or below /tmp if other users could replace what is in tmp_dir. */
static int make_temporary(char **ret, const char *tmp_dir, struct dd_err *err)
{
    DD_AUTO(free) char *safe = NULL;
    const int rc = tmp_dir != NULL ? dd_scratch_parent(&safe, tmp_dir, NULL) : -EPERM;
    return make_random(ret, rc == -EPERM ? "/tmp" : tmp_dir, "ddrun", err);
}

int output_run_dir(char **ret, const char *log_dir, const char *tmp_dir, const char *run_id,
                   struct dd_err *err)
{
    DD_AUTO(free) char *own = NULL;
    int rc = 0;
    if (log_dir == NULL) {
        rc = make_temporary(&own, tmp_dir, err);
        log_dir = own;
    } else {
        rc = make_dirs(log_dir, err);
    }
    if (rc < 0)
        return rc;
    return make_random(ret, log_dir, run_id == NULL || *run_id == '\0' ? "none" : run_id, err);
}

int output_attempt_dirs(const char *run, int attempt, int nlocal, struct dd_err *err)
{
    for (int i = -1; i < nlocal; i++) {
        DD_AUTO(free) char *path = NULL;
        int n = i < 0 ? asprintf(&path, "%s/attempt_%d", run, attempt)
                      : asprintf(&path, "%s/attempt_%d/%d", run, attempt, i);
        if (n < 0)
            return no_memory(err);
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return dd_err_set(err, -errno, "cannot create log directory '%s': %m", path);
    }
    return 0;
}

int output_path(char **ret, const char *run, int attempt, int local_rank, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/attempt_%d/%d/%s", run, attempt, local_rank, name) < 0)
        return -ENOMEM;
    *ret = path;
    return 0;
}

int output_open(const char *path, struct dd_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    return fd < 0 ? dd_err_set(err, -errno, "cannot open '%s': %m", path) : fd;
}
