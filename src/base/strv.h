/* Vectors of strings: argument lists and environment blocks ("NAME=value"), always NULL-ended. */
#ifndef DD_BASE_STRV_H
#define DD_BASE_STRV_H

#include <stddef.h>

struct dd_strv {
    char **v; /* v[n] is NULL; v itself is NULL while nothing was pushed */
    size_t n;
    size_t cap;
};

/* All return 0 or -ENOMEM. The strings are copied. */
int dd_strv_push(struct dd_strv *sv, const char *s);
int dd_strv_pushn(struct dd_strv *sv, const char *s, size_t len);
int dd_strv_pushf(struct dd_strv *sv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dd_strv_copy(struct dd_strv *to, char *const *from); /* appends all of from */
/* Splits at any byte of `seps`; empty pieces are dropped. */
int dd_strv_split(struct dd_strv *sv, const char *s, const char *seps);
void dd_strv_done(struct dd_strv *sv);

/* The value of NAME in an environment block, lent until the block changes; NULL when not set. */
const char *dd_env_get(char *const *env, const char *name);
/* Like dd_env_get, but an empty value counts as not set. */
const char *dd_env_get_nonempty(char *const *env, const char *name);
int dd_env_set(struct dd_strv *env, const char *name, const char *value);
int dd_env_setf(struct dd_strv *env, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void dd_env_unset(struct dd_strv *env, const char *name);
void dd_env_unset_prefix(struct dd_strv *env, const char *prefix); /* every NAME that starts so */

typedef int dd_env_diff_f(void *arg, const char *name, const char *value);
/* Calls put for every variable of `after` that `before` does not have, or not with this value;
 * then, with NULL, for every one that only `before` has. Stops at the first that does not return 0;
 * -ENOMEM. */
int dd_env_diff(char *const *before, char *const *after, dd_env_diff_f *put, void *arg);

static inline void dd_auto_strv(struct dd_strv *sv)
{
    dd_strv_done(sv);
}

#endif
