#include "pmi/place.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/owner.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWNER ".ddrun-owner"

enum { FOLDERS_OPEN = 16, LOOK_AT = 4096 };

int pmi_place_new(struct pmi_place *ret, const char *tmp_dir, struct dd_err *err)
{
    uint64_t random;
    if (tmp_dir == NULL)
        tmp_dir = "/tmp";
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return dd_err_set(err, -EIO, "no random numbers");
    *ret = (struct pmi_place){0};
    if (asprintf(&ret->tmp, "%s/ddrun_%016" PRIx64 ".mpi", tmp_dir, random) < 0)
        ret->tmp = NULL;
    if (access("/dev/shm", W_OK | X_OK) == 0 && asprintf(&ret->shm, "/dev/shm/ddrun_%016" PRIx64, random) < 0)
        ret->shm = NULL;
    return ret->tmp == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

/* So that the next one can sweep it, should all who would be killed at once. */
static void note_owner(const char *folder)
{
    char path[PATH_MAX];
    char owner[DD_OWNER_MAX];
    dd_owner_text(owner);
    if (snprintf(path, sizeof(path), "%s/" OWNER, folder) < (int)sizeof(path))
        (void)dd_write_file(path, owner, strlen(owner), NULL);
}

int pmi_place_make(const struct pmi_place *p, struct dd_err *err)
{
    const char *const folders[] = {p->tmp, p->shm};
    for (size_t i = 0; i < 2; i++) {
        if (folders[i] == NULL)
            continue;
        if (mkdir(folders[i], 0700) < 0 && errno != EEXIST)
            return dd_err_set(err, -errno, "cannot make the folder '%s': %m", folders[i]);
        note_owner(folders[i]);
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *where)
{
    (void)st;
    (void)what;
    (void)where;
    (void)remove(path); /* what is left keeps its folder, and that is told */
    return 0;
}

int pmi_place_remove(const struct pmi_place *p)
{
    const char *const folders[] = {p->shm, p->tmp};
    int rc = 0;
    for (size_t i = 0; i < 2; i++) {
        if (folders[i] == NULL)
            continue;
        (void)nftw(folders[i], remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
        if (access(folders[i], F_OK) == 0)
            rc = -ENOTEMPTY;
    }
    return rc;
}

static bool is_stale(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;
    DD_AUTO(buf) struct dd_buf owner = DD_BUF_INIT(DD_OWNER_MAX);
    if (snprintf(path, sizeof(path), "%s/" OWNER, folder) >= (int)sizeof(path) || lstat(folder, &st) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || dd_read_file(path, &owner, NULL) < 0)
        return false;
    const char *text = dd_buf_str(&owner);
    return text != NULL && dd_owner_is_gone(text);
}

static void sweep(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    char path[PATH_MAX];
    for (int n = 0; d != NULL && n < LOOK_AT && (e = readdir(d)) != NULL; n++)
        if (strncmp(e->d_name, "ddrun_", 6) == 0 &&
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path) && is_stale(path))
            (void)nftw(path, remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
    if (d != NULL)
        (void)closedir(d);
}

void pmi_place_sweep(const struct pmi_place *p)
{
    char dir[PATH_MAX];
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(p->tmp, '/') - p->tmp), p->tmp);
    sweep(dir);
    sweep("/dev/shm");
}

void pmi_place_done(struct pmi_place *p)
{
    free(p->tmp);
    free(p->shm);
    *p = (struct pmi_place){0};
}
