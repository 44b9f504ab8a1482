#include "base/strv.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int strv_take(struct dd_strv *sv, char *s)
{
    if (s == NULL)
        return -ENOMEM;
    if (sv->n + 2 > sv->cap) {
        size_t cap = sv->cap < 8 ? 8 : sv->cap * 2;
        char **v = realloc(sv->v, cap * sizeof(*v));
        if (v == NULL) {
            free(s);
            return -ENOMEM;
        }
        sv->v = v;
        sv->cap = cap;
    }
    sv->v[sv->n++] = s;
    sv->v[sv->n] = NULL;
    return 0;
}

int dd_strv_push(struct dd_strv *sv, const char *s)
{
    return strv_take(sv, strdup(s));
}

int dd_strv_pushn(struct dd_strv *sv, const char *s, size_t len)
{
    return strv_take(sv, strndup(s, len));
}

static char *__attribute__((format(printf, 1, 0))) vformat(const char *fmt, va_list ap)
{
    char *s = NULL;
    return vasprintf(&s, fmt, ap) < 0 ? NULL : s;
}

int dd_strv_pushf(struct dd_strv *sv, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = vformat(fmt, ap);
    va_end(ap);
    return strv_take(sv, s);
}

int dd_strv_push_option(struct dd_strv *sv, const char *name, const char *value)
{
    return value == NULL ? 0 : dd_strv_pushf(sv, "--%s=%s", name, value);
}

int dd_strv_copy(struct dd_strv *to, char *const *from)
{
    int rc = 0;
    for (; from != NULL && *from != NULL && rc == 0; from++)
        rc = dd_strv_push(to, *from);
    return rc;
}

int dd_strv_split(struct dd_strv *sv, const char *s, const char *seps)
{
    int rc = 0;
    while (rc == 0 && *(s += strspn(s, seps)) != '\0') {
        size_t n = strcspn(s, seps);
        rc = dd_strv_pushn(sv, s, n);
        s += n;
    }
    return rc;
}

void dd_strv_done(struct dd_strv *sv)
{
    for (size_t i = 0; i < sv->n; i++)
        free(sv->v[i]);
    free(sv->v);
    *sv = (struct dd_strv){0};
}

/* Compare the first character without a call: a start of ddrun compares 40,000 names, most of which
 * differ there. */
static bool begins(const char *entry, const char *word, size_t len)
{
    return entry[0] == word[0] && strncmp(entry, word, len) == 0;
}

static size_t env_index(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        if (begins(env[i], name, len) && env[i][len] == '=')
            return i;
    return SIZE_MAX;
}

const char *dd_env_get(char *const *env, const char *name)
{
    size_t i = env_index(env, name);
    return i == SIZE_MAX ? NULL : env[i] + strlen(name) + 1;
}

const char *dd_env_get_nonempty(char *const *env, const char *name)
{
    const char *v = dd_env_get(env, name);
    return v != NULL && *v != '\0' ? v : NULL;
}

static char *entry_of(const char *name, const char *value)
{
    char *s = malloc(strlen(name) + 1 + strlen(value) + 1);
    if (s != NULL)
        (void)stpcpy(stpcpy(stpcpy(s, name), "="), value);
    return s;
}

int dd_env_set(struct dd_strv *env, const char *name, const char *value)
{
    DD_AUTO(free) char *s = entry_of(name, value);
    if (s == NULL)
        return -ENOMEM;
    size_t i = env_index(env->v, name);
    if (i == SIZE_MAX)
        return strv_take(env, DD_TAKE(s));
    free(env->v[i]);
    env->v[i] = DD_TAKE(s);
    return 0;
}

int dd_env_setf(struct dd_strv *env, const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    DD_AUTO(free) char *s = vformat(fmt, ap);
    va_end(ap);
    return s == NULL ? -ENOMEM : dd_env_set(env, name, s);
}

static void strv_remove(struct dd_strv *sv, size_t i)
{
    free(sv->v[i]);
    memmove(sv->v + i, sv->v + i + 1, (sv->n - i) * sizeof(*sv->v)); /* including the final NULL */
    sv->n--;
}

void dd_env_unset(struct dd_strv *env, const char *name)
{
    size_t i;
    while ((i = env_index(env->v, name)) != SIZE_MAX)
        strv_remove(env, i);
}

void dd_env_unset_prefix(struct dd_strv *env, const char *prefix)
{
    size_t len = strlen(prefix);
    for (size_t i = 0; i < env->n;)
        if (begins(env->v[i], prefix, len))
            strv_remove(env, i);
        else
            i++;
}

static char *strv_name_of(const char *entry)
{
    return strndup(entry, strcspn(entry, "="));
}

/* ---- comparison of environments ---- */

/* Ordered by name; of several entries with one name the first counts, as for getenv(). */
struct entry {
    const char *text;
    size_t len; /* bytes of the name */
    size_t place;
};

static int strv_by_name(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    const int c = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (c != 0 || x->len != y->len)
        return c != 0 ? c : x->len < y->len ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

struct sorted {
    struct entry *v;
    size_t n;
};

/* Sort the variables, so that the comparison is not quadratic. */
static int sort_env(struct sorted *ret, char *const *env)
{
    size_t n = 0;
    while (env != NULL && env[n] != NULL)
        n++;
    *ret = (struct sorted){.v = calloc(n + 1, sizeof(*ret->v))};
    if (ret->v == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(env[i], '='); /* an entry without '=' is not a variable */
        if (eq != NULL)
            ret->v[ret->n++] = (struct entry){env[i], (size_t)(eq - env[i]), i};
    }
    qsort(ret->v, ret->n, sizeof(*ret->v), strv_by_name);
    return 0;
}

/* Return the value in s of the variable that the entry `text` names; NULL: not set. */
static const char *value_in(const struct sorted *s, const char *text)
{
    const struct entry wanted = {text, strcspn(text, "="), 0};
    size_t low = 0;
    size_t high = s->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (strv_by_name(&s->v[mid], &wanted) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    const struct entry *e = low < s->n ? &s->v[low] : NULL;
    const bool found = e != NULL && e->len == wanted.len && memcmp(e->text, text, e->len) == 0;
    return found ? e->text + e->len + 1 : NULL;
}

static int put_entry(const char *entry, const char *value, dd_env_diff_f *put, void *arg)
{
    DD_AUTO(free) char *name = strv_name_of(entry);
    return name == NULL ? -ENOMEM : put(arg, name, value);
}

int dd_env_diff(char *const *before, char *const *after, dd_env_diff_f *put, void *arg)
{
    struct sorted was = {0};
    struct sorted is = {0};
    int rc = sort_env(&was, before);
    if (rc == 0)
        rc = sort_env(&is, after);
    for (char *const *e = after; e != NULL && *e != NULL && rc == 0; e++) {
        const char *value = strchr(*e, '=');
        const char *old = value_in(&was, *e);
        if (value != NULL && (old == NULL || strcmp(old, value + 1) != 0))
            rc = put_entry(*e, value + 1, put, arg);
    }
    for (char *const *e = before; e != NULL && *e != NULL && rc == 0; e++)
        if (value_in(&is, *e) == NULL)
            rc = put_entry(*e, NULL, put, arg);
    free(was.v);
    free(is.v);
    return rc;
}
