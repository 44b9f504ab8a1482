#include "agent/features.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>

struct features {
    const struct round_feature *const *table;
    int n;
    int prepared; /* number of prepared features, the first ones of the table: their end hooks must
                     be called */
    void *state[];
};

/* Iterate over the features that take part and have this hook. */
#define FOR_EACH_WITH(hook, fs, i)                                                                 \
    for (int i = 0; i < (fs)->n; i++)                                                              \
        if ((fs)->state[i] != NULL && (fs)->table[i]->hook != NULL)

int features_new(struct features **ret, const struct round_feature *const *table,
                 const struct round *r, struct dd_err *err)
{
    int n = 0;
    int rc = 0;
    while (table[n] != NULL)
        n++;
    struct features *fs = calloc(1, sizeof(*fs) + (size_t)n * sizeof(fs->state[0]));
    if (fs == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    fs->table = table;
    fs->n = n;
    *ret = fs;
    for (int i = 0; i < n && rc == 0; i++)
        if (table[i]->create != NULL)
            rc = table[i]->create(&fs->state[i], r, err);
    return rc;
}

int features_prepare(struct features *fs, const struct round *r, struct dd_err *err)
{
    int rc = 0;
    while (fs->prepared < fs->n && rc == 0) {
        const int i = fs->prepared++;
        if (fs->table[i]->prepare != NULL)
            rc = fs->table[i]->prepare(&fs->state[i], r, err);
    }
    return rc;
}

void features_spec_input(const struct features *fs, const struct round *r, struct spec_input *in)
{
    FOR_EACH_WITH(spec_input, fs, i)
    fs->table[i]->spec_input(fs->state[i], r, in);
}

int features_worker_env(const struct features *fs, const struct round *r, int local_rank,
                        struct worker_spec *spec)
{
    int rc = 0;
    FOR_EACH_WITH(worker_env, fs, i)
    if (rc == 0)
        rc = fs->table[i]->worker_env(fs->state[i], r, local_rank, spec);
    return rc;
}

int features_started(const struct features *fs, const struct round *r, struct dd_err *err)
{
    int rc = 0;
    FOR_EACH_WITH(started, fs, i)
    if (rc == 0)
        rc = fs->table[i]->started(fs->state[i], r, err);
    return rc;
}

void features_message(const struct features *fs, const struct round *r,
                      const struct round_message *m)
{
    if (fs->prepared > 0)
        FOR_EACH_WITH(message, fs, i)
    fs->table[i]->message(fs->state[i], r, m);
}

void features_stopping(const struct features *fs, const struct round *r)
{
    if (fs->prepared > 0)
        FOR_EACH_WITH(stopping, fs, i)
    fs->table[i]->stopping(fs->state[i], r);
}

void features_worker_exit(const struct features *fs, const struct round *r, struct worker_end *end)
{
    FOR_EACH_WITH(worker_exit, fs, i)
    fs->table[i]->worker_exit(fs->state[i], r, end);
}

void features_verdict(const struct features *fs, const struct round *r,
                      const struct worker_end *end)
{
    FOR_EACH_WITH(verdict, fs, i)
    fs->table[i]->verdict(fs->state[i], r, end);
}

bool features_leave(const struct features *fs, const struct round *r)
{
    bool waits = false;
    if (fs->prepared > 0)
        FOR_EACH_WITH(leave, fs, i)
    waits |= fs->table[i]->leave(fs->state[i], r);
    return waits;
}

void features_end(struct features *fs, const struct round *r)
{
    while (fs->prepared > 0) {
        const int i = --fs->prepared;
        const struct round_feature *f = fs->table[i];
        if (fs->state[i] != NULL && f->end != NULL)
            f->end(fs->state[i], r);
        if (f->destroy == NULL)
            fs->state[i] = NULL;
    }
}

void features_free(struct features *fs)
{
    if (fs == NULL)
        return;
    FOR_EACH_WITH(destroy, fs, i)
    fs->table[i]->destroy(fs->state[i]);
    free(fs);
}

void *features_state(const struct round *r, const struct round_feature *f)
{
    const struct features *fs = r->features;
    for (int i = 0; fs != NULL && i < fs->n; i++)
        if (fs->table[i] == f)
            return fs->state[i];
    return NULL;
}
