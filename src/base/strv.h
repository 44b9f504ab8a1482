/* Vectors of strings: argument lists and environment blocks ("NAME=value"), always NULL-terminated.
 */
#ifndef DD_BASE_STRV_H
#define DD_BASE_STRV_H

#include <stddef.h>

struct dd_strv {
    char **v; /* v[n] is NULL; v itself is NULL until something is pushed */
    size_t n;
    size_t cap;
};

/* Return 0 or -ENOMEM. Strings are copied. */
int dd_strv_push(struct dd_strv *sv, const char *s);
int dd_strv_pushn(struct dd_strv *sv, const char *s, size_t len);
int dd_strv_pushf(struct dd_strv *sv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Append --NAME=VALUE; value NULL: nothing. */
int dd_strv_push_option(struct dd_strv *sv, const char *name, const char *value);
int dd_strv_copy(struct dd_strv *to, char *const *from); /* appends copies of all strings */
/* Split at any byte in `seps`; drop empty pieces. */
int dd_strv_split(struct dd_strv *sv, const char *s, const char *seps);
void dd_strv_done(struct dd_strv *sv);

/* Return the value of NAME in an environment block, borrowed until the block changes; NULL: not
 * set. */
const char *dd_env_get(char *const *env, const char *name);
/* Like dd_env_get, but an empty value counts as not set. */
const char *dd_env_get_nonempty(char *const *env, const char *name);
int dd_env_set(struct dd_strv *env, const char *name, const char *value);
int dd_env_setf(struct dd_strv *env, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void dd_env_unset(struct dd_strv *env, const char *name);
void dd_env_unset_prefix(struct dd_strv *env, const char *prefix); /* all with this prefix */

typedef int dd_env_diff_f(void *arg, const char *name, const char *value);
/* Call put for every variable of `after` that is missing in `before` or differs, then with NULL for
 * every one that only `before` has. Stop at the first nonzero return value and return it; -ENOMEM.
 */
int dd_env_diff(char *const *before, char *const *after, dd_env_diff_f *put, void *arg);

static inline void dd_auto_strv(struct dd_strv *sv)
{
    dd_strv_done(sv);
}

#endif
