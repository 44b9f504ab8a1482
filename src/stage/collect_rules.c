#include "stage/collect_rules.h"

#include "base/auto.h"
#include "base/buf.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { PATTERN_MAX = 4096, NAME_BYTES = 256 };

/* True if a component of the path is "..". */
static bool has_dots(const char *path)
{
    for (const char *s = path; *s != '\0';) {
        const size_t n = strcspn(s, "/");
        if (n == 2 && s[0] == '.' && s[1] == '.')
            return true;
        s += n;
        s += strspn(s, "/");
    }
    return false;
}

int collect_rule_split(const char *rule, char **ret_pattern, char **ret_dir, struct dd_err *err)
{
    const char *colon = strrchr(rule, ':');
    *ret_pattern = *ret_dir = NULL;
    if (colon == NULL || colon == rule || colon[1] == '\0')
        return dd_err_set(err, -EINVAL,
                          "invalid value '%.300s': expected PATTERN:DIR, such as "
                          "'/tmp/ckpt/*.pt:results'",
                          rule);
    size_t n = (size_t)(colon - rule);
    while (n > 1 && rule[n - 1] == '/')
        n--;
    if (n == 1 && rule[0] == '/')
        return dd_err_set(err, -EINVAL,
                          "cannot collect '/': expected files, or one directory below '/'");
    if (n >= PATTERN_MAX || strlen(rule) >= (size_t)2 * PATTERN_MAX)
        return dd_err_set(err, -EINVAL, "the %s of '%.60s…' is longer than %d bytes",
                          n >= PATTERN_MAX ? "pattern" : "directory", rule, PATTERN_MAX - 1);
    *ret_pattern = strndup(rule, n);
    *ret_dir = strdup(colon + 1);
    if (*ret_pattern == NULL || *ret_dir == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return has_dots(*ret_pattern)
               ? dd_err_set(err, -EINVAL, "the pattern '%.300s' contains '..'", *ret_pattern)
               : 0;
}

/* Append the value of the variable at *s, which follows a '$', and advance *s. */
static int put_variable(struct dd_buf *out, const char **s, char *const *env, struct dd_err *err)
{
    char name[NAME_BYTES];
    const bool braces = **s == '{';
    const char *from = *s + braces;
    size_t n = 0;
    while (n < sizeof(name) - 1 && (isalnum((unsigned char)from[n]) || from[n] == '_')) {
        name[n] = from[n];
        n++;
    }
    name[n] = '\0';
    if (n == 0 || isdigit((unsigned char)name[0]) ||
        (braces && from[n] != '}')) /* a file name may contain '$' */
        return dd_buf_puts(out, "$");
    const char *value = dd_env_get_nonempty(env, name);
    if (value == NULL)
        return dd_err_set(err, -EINVAL, "the variable %s is %s", name,
                          dd_env_get(env, name) == NULL ? "not set" : "empty");
    *s = from + n + braces;
    return dd_buf_puts(out, value);
}

int collect_rule_expand(char **ret, const char *pattern, const char *directory, char *const *env,
                        struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PATTERN_MAX);
    DD_AUTO(buf) struct dd_buf full = DD_BUF_INIT(2 * PATTERN_MAX);
    int rc = 0;
    *ret = NULL;
    for (const char *s = pattern; *s != '\0' && rc == 0;)
        if (*s++ == '$')
            rc = put_variable(&out, &s, env, err);
        else
            rc = dd_buf_append(&out, s - 1, 1);
    if (rc == -EINVAL)
        return rc;
    const char *text = rc == 0 ? dd_buf_str(&out) : NULL;
    if (text != NULL && text[0] != '/')
        rc = dd_buf_printf(&full, "%s/%s", directory, text);
    else if (text != NULL)
        rc = dd_buf_puts(&full, text);
    if (text == NULL || rc < 0)
        return dd_err_set(err, -EINVAL, "cannot expand the pattern '%.300s': %s", pattern,
                          rc == -EMSGSIZE ? "the result is too long" : "out of memory");
    while (full.len > 1 && full.data[full.len - 1] == '/')
        full.len--;
    if (dd_buf_str(&full) != NULL && has_dots(dd_buf_str(&full)))
        return dd_err_set(err, -EINVAL, "the expanded pattern '%.300s' contains '..'",
                          dd_buf_str(&full));
    *ret = dd_buf_steal(&full);
    return *ret != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

size_t collect_rule_prefix(const char *pattern)
{
    const size_t plain = strcspn(pattern, "*?[\\");
    size_t n = plain;
    while (n > 0 && pattern[n - 1] != '/')
        n--;
    return n;
}
