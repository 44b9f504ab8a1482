#include "worker/rules.h"

#include "base/auto.h"
#include "base/buf.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DIGITS = 9, COMMAND_MAX = 1 << 16 };

/* Parse the number at *s and advance *s; -1: none, or more than MAX_DIGITS digits. */
static int take_number(const char **s)
{
    int n = 0;
    int digits = 0;
    for (; isdigit((unsigned char)**s) && digits < MAX_DIGITS; digits++)
        n = n * 10 + *(*s)++ - '0';
    return digits > 0 && !isdigit((unsigned char)**s) ? n : -1;
}

/* Match the RANKS of a rule. Return 1: rank is included, 0: it is not, -EINVAL: malformed. *ret:
 * the value. */
static int match(const char *s, int rank, const char **ret)
{
    int found = 0;
    if (strncmp(s, "all:", 4) == 0) {
        *ret = s + 4;
        return 1;
    }
    do {
        int first = take_number(&s);
        int last = first;
        if (first >= 0 && *s == '-') {
            s++;
            last = take_number(&s);
        }
        if (first < 0 || last < first || (*s != ',' && *s != ':'))
            return -EINVAL;
        found |= rank >= first && rank <= last;
    } while (*s++ == ',');
    *ret = s;
    return found;
}

int rule_check(const char *text, const char *option, const char *example, struct dd_err *err)
{
    const char *value;
    if (match(text, 0, &value) >= 0 && *value != '\0')
        return 0;
    return dd_err_set(err, -EINVAL,
                      "invalid value %s=%s: expected RANKS:VALUE, such as %s=%s, or all:VALUE",
                      option, text, option, example);
}

const char *rule_for(const char *rule, int rank)
{
    const char *value;
    return match(rule, rank, &value) > 0 ? value : NULL;
}

/* The name of a variable never contains ':'. */
static bool has_ranks(const char *rule)
{
    return memchr(rule, ':', strcspn(rule, "=")) != NULL;
}

int rule_highest_rank(const char *rule)
{
    int highest = -1;
    if (!has_ranks(rule) || strncmp(rule, "all:", 4) == 0)
        return highest;
    do {
        const int first = take_number(&rule);
        highest = first > highest ? first : highest;
        rule += strcspn(rule, ",:");
    } while (*rule++ == ',');
    return highest;
}

int rule_check_env(const char *text, struct dd_err *err)
{
    const char *value = text;
    int rc = has_ranks(text) ? rule_check(text, "--env", "0,3-5:NAME=VALUE", err) : 0;
    if (rc < 0)
        return rc;
    if (has_ranks(text))
        (void)match(text, 0, &value);
    size_t n = 0;
    while (isalnum((unsigned char)value[n]) || value[n] == '_')
        n++;
    if (n > 0 && !isdigit((unsigned char)value[0]) &&
        (value[n] == '=' || (value[n] == '\0' && value == text)))
        return 0;
    return dd_err_set(err, -EINVAL,
                      "--env (-x): '%s' is not NAME=VALUE with a NAME of letters, digits and '_' "
                      "that begins with no digit"
                      "\n  tip: use -x NAME=VALUE, or --env=0,3-5:NAME=VALUE for some ranks",
                      value);
}

const char *rule_env_wanted(const char *rule)
{
    return strchr(rule, '=') == NULL ? rule : NULL;
}

int rules_env(struct dd_strv *env, char *const *rules, int rank)
{
    int rc = 0;
    for (; rules != NULL && *rules != NULL && rc == 0; rules++) {
        const char *value = has_ranks(*rules) ? rule_for(*rules, rank) : *rules;
        const char *text = value != NULL ? strchr(value, '=') : NULL;
        DD_AUTO(free) char *name = text != NULL ? strndup(value, (size_t)(text - value)) : NULL;
        if (text != NULL)
            rc = name == NULL ? -ENOMEM : dd_env_set(env, name, text + 1);
    }
    return rc;
}

int rules_wrap(struct dd_strv *argv, char *const *rules, int rank)
{
    DD_AUTO(buf) struct dd_buf command = DD_BUF_INIT(COMMAND_MAX);
    DD_AUTO(strv) struct dd_strv wrapped = {0};
    int rc = 0;
    for (; rules != NULL && *rules != NULL && rc == 0; rules++) {
        const char *value = rule_for(*rules, rank);
        if (value != NULL)
            rc = dd_buf_printf(&command, "%s%s ", command.len == 0 ? "exec " : "", value);
    }
    if (rc < 0 || command.len == 0)
        return rc < 0 ? -ENOMEM : 0;
    if (dd_buf_puts(&command, "\"$@\"") < 0 || dd_strv_push(&wrapped, "/bin/sh") < 0 ||
        dd_strv_push(&wrapped, "-c") < 0 || dd_strv_push(&wrapped, dd_buf_str(&command)) < 0 ||
        dd_strv_push(&wrapped, "sh") < 0 || dd_strv_copy(&wrapped, argv->v) < 0)
        return -ENOMEM;
    struct dd_strv old = *argv;
    *argv = wrapped;
    wrapped = old;
    return 0;
}

int rule_check_preload(const char *text, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv libs = {0};
    const char *value;
    int rc = rule_check(text, "--preload", "0:/opt/lib/libmpitrace.so", err);
    if (rc < 0)
        return rc;
    (void)match(text, 0, &value);
    if (dd_strv_split(&libs, value, ": ") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < libs.n; i++)
        if (strchr(libs.v[i], '/') != NULL && access(libs.v[i], R_OK) < 0)
            return dd_err_set(err, -ENOENT, "--preload=%s: cannot read '%s' on this node: %m", text,
                              libs.v[i]);
    return 0;
}

int rules_preload(struct dd_strv *env, char *const *rules, int rank)
{
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(COMMAND_MAX);
    const char *there = dd_env_get_nonempty(env->v, "LD_PRELOAD");
    int rc = 0;
    for (; rules != NULL && *rules != NULL && rc == 0; rules++) {
        const char *value = rule_for(*rules, rank);
        if (value != NULL)
            rc = dd_buf_printf(&list, "%s%s", list.len > 0 ? ":" : "", value);
    }
    if (rc < 0 || list.len == 0)
        return rc < 0 ? -ENOMEM : 0;
    if (there != NULL && dd_buf_printf(&list, ":%s", there) < 0)
        return -ENOMEM;
    const char *text = dd_buf_str(&list);
    return text == NULL ? -ENOMEM : dd_env_set(env, "LD_PRELOAD", text);
}
