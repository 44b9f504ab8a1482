#include "store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "/torch.rendezvous.";
static const char mark[] = "Y2FuaW1hZGFt"; /* torchrun's marker for an empty state */

struct store_run {
    LIST_ENTRY(store_run) link;
    size_t users; /* number of connections */
    size_t len;
    unsigned char key[];
};

static bool store_runs_is_text(struct store_bytes b, const char *text)
{
    return b.n == strlen(text) && memcmp(b.p, text, b.n) == 0;
}

bool store_runs_begins(struct store_bytes key, struct store_bytes expected,
                       struct store_bytes desired)
{
    return expected.n == 0 && key.n > sizeof(prefix) - 1 &&
           memcmp(key.p, prefix, sizeof(prefix) - 1) == 0 && store_runs_is_text(desired, mark);
}

int store_runs_join(struct store_runs *runs, struct store_engine *e, struct store_bytes key,
                    struct store_run **ret)
{
    struct store_run *r;
    LIST_FOREACH (r, &runs->list, link)
        if (r->len == key.n && memcmp(r->key, key.p, key.n) == 0) {
            r->users++;
            *ret = r;
            return 0;
        }
    int rc = store_account_take(store_engine_account(e), sizeof(*r) + key.n);
    if (rc < 0)
        return rc;
    r = calloc(1, sizeof(*r) + key.n);
    if (r == NULL) {
        store_account_give(store_engine_account(e), sizeof(*r) + key.n);
        return -ENOMEM;
    }
    r->users = 1;
    r->len = key.n;
    memcpy(r->key, key.p, key.n);
    LIST_INSERT_HEAD(&runs->list, r, link);
    *ret = r;
    return 0;
}

/* True if the key is the run's key, or begins with the run's key and ".ROUND/". */
static bool owns(const struct store_run *r, struct store_bytes key)
{
    if (key.n < r->len || memcmp(key.p, r->key, r->len) != 0)
        return false;
    size_t at = r->len;
    if (at == key.n)
        return true;
    if (key.p[at++] != '.')
        return false;
    size_t digits = at;
    while (at < key.n && key.p[at] >= '0' && key.p[at] <= '9')
        at++;
    return at > digits && at < key.n && key.p[at] == '/';
}

struct sweep {
    const struct store_runs *runs;
    const struct store_run *run;
    struct store_bytes *keys;
    size_t n, cap;
};

/* One ID may look like a round of another ("a" and "a.0/b"): the longest matching ID in use owns a
 * key. */
static bool is_swept(const struct sweep *s, struct store_bytes key)
{
    const struct store_run *other;
    if (!owns(s->run, key))
        return false;
    LIST_FOREACH (other, &s->runs->list, link)
        if (other->len > s->run->len && owns(other, key))
            return false;
    return true;
}

static int note_key(void *arg, struct store_bytes key)
{
    struct sweep *s = arg;
    if (!is_swept(s, key))
        return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? 2 * s->cap : 64;
        struct store_bytes *keys = reallocarray(s->keys, cap, sizeof(*keys));
        if (keys == NULL)
            return -ENOMEM; /* the remaining keys are kept */
        s->keys = keys;
        s->cap = cap;
    }
    s->keys[s->n++] = key;
    return 0;
}

void store_runs_leave(struct store_runs *runs, struct store_engine *e, struct store_run *run)
{
    if (run == NULL || --run->users > 0)
        return;
    struct sweep s = {.runs = runs, .run = run};
    (void)store_each_key(e, note_key, &s);
    for (size_t i = 0; i < s.n; i++)
        (void)store_delete(e, s.keys[i]);
    free(s.keys);
    LIST_REMOVE(run, link);
    store_account_give(store_engine_account(e), sizeof(*run) + run->len);
    free(run);
}
