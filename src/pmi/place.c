#include "pmi/place.h"

#include "base/auto.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

enum { FOLDERS_OPEN = 16 };

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

int pmi_place_make(const struct pmi_place *p, struct dd_err *err)
{
    const char *const folders[] = {p->tmp, p->shm};
    for (size_t i = 0; i < 2; i++)
        if (folders[i] != NULL && mkdir(folders[i], 0700) < 0 && errno != EEXIST)
            return dd_err_set(err, -errno, "cannot make the folder '%s': %m", folders[i]);
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

void pmi_place_done(struct pmi_place *p)
{
    free(p->tmp);
    free(p->shm);
    *p = (struct pmi_place){0};
}
