#include "rdzv/exit_rules.h"

#include "base/num.h"
#include "base/sig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CODE_MAX = 255, WORD_MAX = 32 };

static const char *const names[EXIT_RULE_MAX] = {
    [EXIT_RESTART] = "restart",
    [EXIT_STOP] = "stop",
    [EXIT_MOVE] = "move",
    [EXIT_REQUEUE] = "requeue",
    [EXIT_NO_REQUEUE] = "no-requeue",
};

const char *exit_rule_name(enum exit_rule rule)
{
    return rule < EXIT_RULE_MAX ? names[rule] : "?";
}

/* Parse "16", "64-78" or "SIGBUS" to the first and the last exit code. */
static int parse_codes(char *text, int *first, int *last)
{
    char *dash = strchr(text, '-');
    if (strncmp(text, "SIG", 3) == 0) {
        const int sig = dd_signal_parse(text);
        *first = *last = 128 + sig;
        return sig > 0 && *first <= CODE_MAX ? 0 : -EINVAL;
    }
    if (dash != NULL)
        *dash++ = '\0';
    int rc = dd_num_int(text, 1, CODE_MAX, first);
    if (rc == 0)
        rc = dd_num_int(dash != NULL ? dash : text, 1, CODE_MAX, last);
    return rc == 0 && *first <= *last ? 0 : -EINVAL;
}

/* Parse one rule of `len` bytes. */
static int parse_rule(struct exit_rules *ret, const char *text, size_t len, struct dd_err *err)
{
    char word[WORD_MAX] = "";
    int first;
    int last;
    if (len < sizeof(word))
        memcpy(word, text, len);
    char *equals = strchr(word, '=');
    if (equals == NULL)
        return dd_err_set(err, -EINVAL, "invalid rule '%.*s': expected CODE=ACTION, as in 17=stop",
                          len < WORD_MAX ? (int)len : WORD_MAX, text);
    *equals++ = '\0';
    if (parse_codes(word, &first, &last) < 0)
        return dd_err_set(err, -EINVAL,
                          "invalid rule '%.*s': expected a code from 1 to 255, a range such as "
                          "64-78, or a signal such as SIGBUS before '='",
                          (int)len, text);
    int rule = 0;
    while (rule < EXIT_RULE_MAX && strcmp(equals, names[rule]) != 0)
        rule++;
    if (rule == EXIT_RULE_MAX)
        return dd_err_set(err, -EINVAL,
                          "invalid rule '%.*s': expected restart, stop, move, requeue or "
                          "no-requeue after '='",
                          (int)len, text);
    memset(ret->of + first, rule, (size_t)(last - first) + 1);
    return 0;
}

int exit_rules_parse(struct exit_rules *ret, const char *text, struct dd_err *err)
{
    struct exit_rules r = *ret;
    for (const char *at = text; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        int rc = parse_rule(&r, at, len, err);
        if (rc < 0)
            return rc;
        at += len;
        at += *at == ',';
    }
    *ret = r;
    return 0;
}

int exit_rules_format(struct dd_buf *out, const struct exit_rules *r)
{
    int rc = 0;
    for (int code = 1; code <= CODE_MAX && rc == 0; code++)
        if (r->of[code] != EXIT_RESTART)
            rc = dd_buf_printf(out, "%s%d=%s", out->len > 0 ? "," : "", code,
                               exit_rule_name((enum exit_rule)r->of[code]));
    return rc;
}
