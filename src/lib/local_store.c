#include "lib/local_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct entry {
    struct entry *next;
    bool is_counter;
    int64_t count;
    void *value;
    size_t len;
    char key[];
};

struct local_store {
    pthread_mutex_t lock;
    pthread_cond_t more; /* signalled when a key is added */
    struct entry *first;
};

int local_store_new(struct local_store **ret)
{
    pthread_condattr_t attr;
    struct local_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->more, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = s;
    return 0;
}

static void entry_free(struct entry *e)
{
    free(e->value);
    free(e);
}

void local_store_free(struct local_store *s)
{
    if (s == NULL)
        return;
    for (struct entry *e = s->first, *next; e != NULL; e = next) {
        next = e->next;
        entry_free(e);
    }
    (void)pthread_cond_destroy(&s->more);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Return the link to the entry, or to the end of the list. */
static struct entry **local_store_find(struct local_store *s, const char *key, bool is_counter)
{
    struct entry **p = &s->first;
    while (*p != NULL && ((*p)->is_counter != is_counter || strcmp((*p)->key, key) != 0))
        p = &(*p)->next;
    return p;
}

static struct entry *find_or_make(struct local_store *s, const char *key, bool is_counter)
{
    struct entry **p = local_store_find(s, key, is_counter);
    size_t len = strlen(key) + 1;
    if (*p == NULL && (*p = calloc(1, sizeof(**p) + len)) != NULL) {
        (*p)->is_counter = is_counter;
        memcpy((*p)->key, key, len);
    }
    return *p;
}

static void *local_store_copy(const void *p, size_t n)
{
    char *c = malloc(n + 1);
    if (c == NULL)
        return NULL;
    if (n > 0)
        memcpy(c, p, n);
    c[n] = '\0';
    return c;
}

int local_store_put(struct local_store *s, const char *key, const void *value, size_t len)
{
    void *mine = local_store_copy(value, len);
    (void)pthread_mutex_lock(&s->lock);
    struct entry *e = mine != NULL ? find_or_make(s, key, false) : NULL;
    if (e != NULL) {
        void *old = e->value;
        e->value = mine;
        e->len = len;
        mine = old;
        (void)pthread_cond_broadcast(&s->more);
    }
    (void)pthread_mutex_unlock(&s->lock);
    free(mine);
    return e != NULL ? 0 : -ENOMEM;
}

int local_store_get(struct local_store *s, const char *key, void **ret, size_t *ret_len,
                    uint64_t deadline)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000),
                                   .tv_nsec = (long)(deadline % 1000000000)};
    struct entry *e;
    int rc = 0;
    (void)pthread_mutex_lock(&s->lock);
    while ((e = *local_store_find(s, key, false)) == NULL && rc == 0)
        rc = deadline == UINT64_MAX ? pthread_cond_wait(&s->more, &s->lock)
                                    : pthread_cond_timedwait(&s->more, &s->lock, &until);
    if (e != NULL && ret != NULL) {
        *ret = local_store_copy(e->value, e->len);
        rc = *ret == NULL ? ENOMEM : 0;
    }
    if (e != NULL && ret_len != NULL)
        *ret_len = e->len;
    (void)pthread_mutex_unlock(&s->lock);
    return e != NULL && rc == ETIMEDOUT ? 0 : -rc;
}

int local_store_delete(struct local_store *s, const char *key)
{
    (void)pthread_mutex_lock(&s->lock);
    struct entry **p = local_store_find(s, key, false), *e = *p;
    if (e != NULL)
        *p = e->next;
    (void)pthread_mutex_unlock(&s->lock);
    if (e == NULL)
        return 0;
    entry_free(e);
    return 1;
}

int local_store_add(struct local_store *s, const char *key, int64_t delta, int64_t *ret)
{
    (void)pthread_mutex_lock(&s->lock);
    struct entry *e = find_or_make(s, key, true);
    if (e != NULL) {
        e->count = (int64_t)((uint64_t)e->count + (uint64_t)delta);
        *ret = e->count;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return e != NULL ? 0 : -ENOMEM;
}
