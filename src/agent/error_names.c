#include "agent/error_names.h"

#include "base/auto.h"
#include "store/siphash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

_Static_assert((int)ERROR_NAMES_SECRET == DD_SIPHASH_SEED, "the secret is the key of the hash");

int error_names_new(struct error_names *n, const char *dir, int workers, struct dd_err *err)
{
    *n = (struct error_names){.workers = workers};
    if (getrandom(n->secret, sizeof(n->secret), 0) != sizeof(n->secret))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    void *shared = mmap(NULL, sizeof(*n->round), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    n->dir = shared != MAP_FAILED ? strdup(dir) : NULL;
    n->round = shared != MAP_FAILED ? shared : NULL;
    return n->dir != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

char *error_names_path(const struct error_names *n, int i)
{
    const int which[] = {*n->round, i};
    char *path = NULL;
    uint64_t name = dd_siphash13(n->secret, which, sizeof(which));
    return asprintf(&path, "%s/ddrun_%016" PRIx64 ".json", n->dir, name) < 0 ? NULL : path;
}

void error_names_remove(const struct error_names *n)
{
    for (int i = 0; n->dir != NULL && i < n->workers; i++) {
        DD_AUTO(free) char *path = error_names_path(n, i);
        if (path != NULL)
            (void)unlink(path);
    }
}

void error_names_next(const struct error_names *n)
{
    if (n->dir == NULL)
        return;
    if (*n->round > 0) /* no worker has had a name before the first round */
        error_names_remove(n);
    ++*n->round;
}

void error_names_done(struct error_names *n)
{
    if (n->round != NULL)
        (void)munmap(n->round, sizeof(*n->round));
    free(n->dir);
    *n = (struct error_names){0};
}
