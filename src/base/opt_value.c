/* Parse one value into the field of its kind, or report what is wrong with it. */
#include "base/log.h"
#include "base/num.h"
#include "base/opt_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Bytes of the user's text in a message, which is escaped and truncated to this length. */
#define QUOTED_MAX 120

static const char *quoted(char out[QUOTED_MAX], const char *text)
{
    return dd_log_escape(out, QUOTED_MAX, text, strlen(text));
}

/* Write "; for example --max-restarts=3". */
static void example(char *out, size_t size, const struct opt_row *row,
                    const struct opt_place *place)
{
    const char *right = opt_row_example(row);
    const char *glue = place->style == OPT_STYLE_LETTER ? " " : "=";
    out[0] = '\0';
    if (right == NULL)
        return;
    if (place->style == OPT_STYLE_OTHER)
        (void)snprintf(out, size, "; for example %s", right);
    else
        (void)snprintf(out, size, "; for example %s%s%s", place->name, glue, right);
}

static int wrong(const struct opt_row *row, const struct opt_place *place, const char *text,
                 const char *what, struct dd_err *err)
{
    char q[QUOTED_MAX];
    char right[200];
    example(right, sizeof(right), row, place);
    return dd_err_set(err, -EINVAL, "%s: '%s' %s%s", place->name, quoted(q, text), what, right);
}

static int set_flag(const char *text, bool *ret)
{
    static const char *const words[][2] = {
        {"no", "yes"},
        {"0", "1"},
        {"false", "true"},
        {"off", "on"},
    };
    int n;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (int on = 0; on < 2; on++)
            if (strcasecmp(text, words[i][on]) == 0) {
                *ret = on;
                return 0;
            }
    /* accept any integer, as torchrun does for its variables: nonzero is true */
    int rc = dd_num_int(text, INT_MIN, INT_MAX, &n);
    if (rc == 0)
        *ret = n != 0;
    return rc;
}

struct limits {
    int64_t least, most;
};

static struct limits limits_of(const struct opt_row *row)
{
    struct limits l = {.least = row->min, .most = row->max};
    int64_t type_max = row->kind == OPT_INT ? INT_MAX : INT64_MAX;
    if (row->min == 0 && row->max == 0 && row->kind == OPT_INT)
        l.least = INT_MIN;
    if (row->max <= row->min)
        l.most = type_max;
    return l;
}

/* Parse a number; values out of the range of int64_t saturate. */
static int opt_value_read_number(enum opt_kind kind, const char *text, int64_t *ret)
{
    uint64_t u = 0;
    int n = 0;
    int rc = kind == OPT_INT        ? dd_num_int(text, INT_MIN, INT_MAX, &n)
             : kind == OPT_DURATION ? dd_num_duration_ns(text, &u)
                                    : dd_num_bytes(text, &u);
    if (rc == 0 && u > INT64_MAX)
        rc = -ERANGE;
    if (rc == -EINVAL)
        return rc;
    if (rc < 0)
        *ret = *text == '-' ? INT64_MIN : INT64_MAX;
    else
        *ret = kind == OPT_INT ? n : (int64_t)u;
    return 0;
}

static void limit_text(char *out, size_t size, enum opt_kind kind, const char *what, int64_t limit)
{
    if (kind == OPT_DURATION)
        (void)snprintf(out, size, "%s %.12gs", what, (double)limit / 1e9);
    else
        (void)snprintf(out, size, kind == OPT_BYTES ? "%s %" PRId64 " bytes" : "%s %" PRId64, what,
                       limit);
}

static int set_number(const struct opt_row *row, void *field, const struct opt_place *place,
                      const char *text, struct dd_err *err)
{
    static const char *const is_not[] = {
        [OPT_INT] = "is not a whole number",
        [OPT_DURATION] =
            "is not a duration (a number, optionally with a unit: us, ms, s, m, h or d)",
        [OPT_BYTES] = "is not a size (a whole number, optionally with K, M or G)",
    };
    const struct limits l = limits_of(row);
    char what[100];
    int64_t n;
    if (opt_value_read_number(row->kind, text, &n) < 0)
        return wrong(row, place, text, is_not[row->kind], err);
    if (n < l.least || n > l.most) {
        bool small = n < l.least;
        limit_text(what, sizeof(what), row->kind,
                   small ? "is too small: the minimum is" : "is too large: the maximum is",
                   small ? l.least : l.most);
        return wrong(row, place, text, what, err);
    }
    if (row->kind == OPT_INT)
        *(int *)field = (int)n;
    else
        *(uint64_t *)field = (uint64_t)n;
    return 0;
}

static int refuse_choice(const struct opt_row *row, const struct opt_place *place, const char *text,
                         struct dd_err *err)
{
    char q[QUOTED_MAX];
    char list[300] = "";
    size_t n = 0;
    size_t len;
    const char *piece;
    const char *at = row->choices;
    while ((piece = opt_next_piece(&at, &len)) != NULL && n < sizeof(list)) {
        const char *glue = n == 0 ? "" : at == NULL ? " or " : ", ";
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%.*s", glue, (int)len, piece);
    }
    char right[200] = "";
    if (row->example != NULL)
        example(right, sizeof(right), row, place);
    return dd_err_set(err, -EINVAL, "%s: invalid value '%s': expected %s%s", place->name,
                      quoted(q, text), list, right);
}

static int add_repeated(const struct opt_row *row, struct dd_strv *sv,
                        const struct opt_place *place, const char *text, struct dd_err *err)
{
    const char seps[2] = {row->split, '\0'};
    DD_AUTO(strv) struct dd_strv pieces = {0};
    int rc = row->split != 0 ? dd_strv_split(&pieces, text, seps) : dd_strv_push(&pieces, text);
    for (size_t i = 0; rc == 0 && i < pieces.n && row->choices != NULL; i++)
        if (!opt_list_has(row->choices, pieces.v[i]))
            return refuse_choice(row, place, pieces.v[i], err);
    if (rc == 0)
        rc = dd_strv_copy(sv, pieces.v);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

/* Parse with a custom parser, whose message is about the value only. */
static int custom_at(const struct opt_row *row, void *field, const struct opt_place *place,
                     const char *text, struct dd_err *err)
{
    int rc = row->parse(text, field, err);
    return rc < 0 ? dd_err_where(err, rc, "%s", place->name) : 0;
}

int opt_set_at(const struct opt_row *row, void *values, const struct opt_place *place,
               const char *text, struct dd_err *err)
{
    void *field = (char *)values + row->offset;
    if (row->kind != OPT_REPEATED && row->choices != NULL && !opt_list_has(row->choices, text))
        return refuse_choice(row, place, text, err);
    switch (row->kind) {
    case OPT_FLAG:
        if (set_flag(text, field) == 0)
            return 0;
        return wrong(row, place, text, "is not a boolean (expected yes or no)", err);
    case OPT_STRING:
        *(const char **)field = text;
        return 0;
    case OPT_INT:
    case OPT_DURATION:
    case OPT_BYTES:
        return set_number(row, field, place, text, err);
    case OPT_REPEATED:
        return add_repeated(row, field, place, text, err);
    case OPT_CUSTOM:
        return custom_at(row, field, place, text, err);
    }
    return dd_err_set(err, -EINVAL, "option %s has an invalid kind", row->name);
}

int opt_set(const struct opt_row *row, void *values, const char *place, const char *text,
            struct dd_err *err)
{
    const struct opt_place at = {.style = OPT_STYLE_OTHER, .name = place};
    return opt_set_at(row, values, &at, text, err);
}
