#include "worker/step_lines.h"

#include "base/num.h"
#include "rdzv/progress.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 10, DIGITS_MAX = 19 };

struct step_line {
    char text[STEP_LINE_MAX + 1];
    size_t len;
};

struct step_lines {
    regex_t regex;
    struct step_line line[2]; /* the line that has not ended yet */
    struct step_max highest;
    void (*on_step)(void *arg);
    void *arg;
};

static int compile(regex_t *ret, const char *regex, struct dd_err *err)
{
    char why[200];
    if (strlen(regex) > STEP_REGEX_MAX)
        return dd_err_set(err, -EINVAL, "the regular expression is longer than %d bytes",
                          STEP_REGEX_MAX);
    int rc = regcomp(ret, regex, REG_EXTENDED);
    if (rc != 0) {
        (void)regerror(rc, ret, why, sizeof(why));
        return dd_err_set(err, -EINVAL, "invalid regular expression '%s': %s", regex, why);
    }
    if (ret->re_nsub > 0)
        return 0;
    regfree(ret);
    return dd_err_set(err, -EINVAL,
                      "the regular expression '%s' has no group for the number of the step, as in "
                      "'step ([0-9]+)'",
                      regex);
}

int step_lines_new(struct step_lines **ret, const char *regex, struct dd_err *err)
{
    struct step_lines *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = compile(&s->regex, regex, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->highest = STEP_MAX_NONE;
    *ret = s;
    return 0;
}

void step_lines_free(struct step_lines *s)
{
    if (s == NULL)
        return;
    regfree(&s->regex);
    free(s);
}

void step_lines_on_step(struct step_lines *s, void (*on_step)(void *arg), void *arg)
{
    s->on_step = on_step;
    s->arg = arg;
}

void step_lines_begin(struct step_lines *s)
{
    s->line[0].len = s->line[1].len = 0;
    s->highest = STEP_MAX_NONE;
}

/* Return the number that a group has matched; -1: none. */
static int64_t number(const char *text, const regmatch_t *m)
{
    char digits[DIGITS_MAX + 1];
    uint64_t v;
    const size_t n = m->rm_so < 0 ? 0 : (size_t)(m->rm_eo - m->rm_so);
    if (n == 0 || n > DIGITS_MAX)
        return -1;
    memcpy(digits, text + m->rm_so, n);
    digits[n] = '\0';
    return dd_num_u64(digits, 0, INT64_MAX, &v) == 0 ? (int64_t)v : -1;
}

static void search(struct step_lines *s, struct step_line *l)
{
    regmatch_t m[GROUPS_MAX];
    int64_t step = -1;
    l->text[l->len] = '\0';
    l->len = 0;
    if (regexec(&s->regex, l->text, GROUPS_MAX, m, 0) != 0)
        return;
    for (size_t i = 1; i < GROUPS_MAX && i <= s->regex.re_nsub && step < 0; i++)
        step = number(l->text, &m[i]);
    if (step_max_take(&s->highest, step) && s->on_step != NULL)
        s->on_step(s->arg);
}

void step_lines_feed(struct step_lines *s, int stream, const void *p, size_t n)
{
    struct step_line *l = &s->line[stream == 1];
    const char *at = p;
    for (size_t i = 0; i < n; i++) {
        if ((at[i] == '\n' || at[i] == '\r') && l->len > 0)
            search(s, l);
        else if (at[i] != '\n' && at[i] != '\r' && l->len < STEP_LINE_MAX)
            l->text[l->len++] = at[i] != '\0' ? at[i] : ' ';
    }
}

void step_lines_end(struct step_lines *s)
{
    for (int i = 0; i < 2; i++)
        if (s->line[i].len > 0)
            search(s, &s->line[i]);
}

int64_t step_lines_highest(const struct step_lines *s)
{
    return step_max_get(&s->highest);
}
