/* Expand expressions to names, in two passes over the text: the first validates and counts, so that
 * no memory is allocated for invalid or too long lists; the second writes the names. Brackets are
 * not stored expanded: each is a cursor in the text.
 *
 *   list    = [ term { sep term } ]
 *   sep     = one or more commas or white space characters
 *   term    = { literal | bracket }      at least one; at most BRACKETS_MAX brackets
 *   bracket = "[" range { "," range } "]"
 *   range   = number [ "-" number ]      padded to the width of the first number
 *
 * The order of a term with several brackets is Slurm's: the last one runs fastest, then the first,
 * the second and so on, so that the last but one is the slowest. Two brackets are therefore in
 * row-major order, three are not: a[1-2]b[3-4]c[5-6] begins a1b3c5, a1b3c6, a2b3c5. Src: `scontrol
 * show hostnames` of Slurm 22.05.8, tested with up to 7 brackets of 2 and 3 values;
 * tests/e2e/test_hostlist.py compares random lists. */
#include "hostlist/list.h"

#include "base/log.h"
#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BRACKETS_MAX = 16 };

struct range {
    uint64_t now;
    uint64_t last;
    int width;
};

struct bracket {
    const char *open; /* after the '[' */
    const char *next; /* the ',' or ']' after the current range */
    struct range range;
};

struct term {
    const char *literal[BRACKETS_MAX +
                        1]; /* literal[i] precedes bracket i; the last one follows all brackets */
    size_t literal_len[BRACKETS_MAX + 1];
    struct bracket bracket[BRACKETS_MAX];
    unsigned n;
    size_t names;
    size_t longest;
};

struct reader {
    const char *expr;
    const char *p;
    struct dd_err *err;
};

/* The user's text in an error message: truncated, without control characters. */
struct shown {
    char text[180];
};

static const char *parse_show(struct shown *s, const char *text, size_t n)
{
    size_t keep = n > 40 ? 40 : n;
    size_t len = strlen(dd_log_escape(s->text, sizeof(s->text) - 4, text, keep));
    if (keep < n)
        memcpy(s->text + len, "...", 4);
    return s->text;
}

/* Fail with "'text' why (character N of host list 'expr')". */
static int parse_refuse(const struct reader *r, int rc, const char *at, size_t n, const char *why)
{
    struct shown piece;
    struct shown expr;
    return dd_err_set(r->err, rc, "'%s' %s (character %zu of host list '%s')",
                      parse_show(&piece, at, n), why, (size_t)(at - r->expr) + 1,
                      parse_show(&expr, r->expr, strlen(r->expr)));
}

static int too_many(const struct reader *r, const char *at)
{
    struct shown expr;
    return dd_err_set(r->err, -E2BIG, "host list '%s' has more than %d names (character %zu)",
                      parse_show(&expr, r->expr, strlen(r->expr)), HOSTLIST_MAX,
                      (size_t)(at - r->expr) + 1);
}

static bool is_separator(char c)
{
    return c != '\0' && strchr(", \t\r\n", c) != NULL;
}

/* Read the digits at *p; false if there are none or they exceed 64 bits. */
static bool parse_read_number(const char **p, uint64_t *ret, size_t *ret_width)
{
    const char *first = *p;
    while (hostlist_is_digit(**p))
        (*p)++;
    *ret_width = (size_t)(*p - first);
    while (first + 1 < *p && *first == '0')
        first++;
    char digits[21];
    size_t n = (size_t)(*p - first);
    if (n >= sizeof(digits))
        return false;
    memcpy(digits, first, n);
    digits[n] = '\0';
    return dd_num_u64(digits, 0, UINT64_MAX, ret) == 0;
}

/* Read one range at *p and advance *p. Return NULL, or the error. */
static const char *read_range(const char **p, struct range *ret, size_t *ret_longest)
{
    static const char what[] = "is not a number or a range such as 1-4";
    static const char large[] = "has a number of more than 64 bits";
    size_t width;
    size_t last_width;
    bool is_number = hostlist_is_digit(**p);
    if (!parse_read_number(p, &ret->now, &width))
        return is_number ? large : what;
    ret->last = ret->now;
    last_width = width;
    if (**p == '-') {
        (*p)++;
        is_number = hostlist_is_digit(**p);
        if (!parse_read_number(p, &ret->last, &last_width))
            return is_number ? large : what;
    }
    if (**p != ',' && **p != ']')
        return what;
    if (width > HOSTLIST_NAME_MAX)
        return "has more than 255 digits";
    if (ret->last < ret->now)
        return "is a descending range; the smaller number must come first";
    ret->width = (int)width;
    *ret_longest = (size_t)snprintf(NULL, 0, "%0*" PRIu64, ret->width, ret->last);
    return NULL;
}

static void bracket_restart(struct bracket *b)
{
    size_t longest;
    b->next = b->open;
    (void)read_range(&b->next, &b->range, &longest);
}

/* Advance to the next number. After the last one, return to the first and return false. */
static bool bracket_advance(struct bracket *b)
{
    size_t longest;
    if (b->range.now < b->range.last) {
        b->range.now++;
        return true;
    }
    if (*b->next == ']') {
        bracket_restart(b);
        return false;
    }
    b->next++;
    (void)read_range(&b->next, &b->range, &longest);
    return true;
}

static int too_many_brackets(const struct reader *r, const char *at, size_t n)
{
    char why[64];
    (void)snprintf(why, sizeof(why), "exceeds the limit of %d brackets in one name", BRACKETS_MAX);
    return parse_refuse(r, -EINVAL, at, n, why);
}

/* Read "[...]" at r->p into the next bracket of the term. */
static int read_bracket(struct reader *r, struct term *t)
{
    const char *open = r->p;
    size_t inside = strcspn(open + 1, "[]");
    size_t count = 0;
    size_t longest = 0;
    if (open[1 + inside] != ']')
        return parse_refuse(r, -EINVAL, open, strlen(open), "has an unmatched '['");
    if (t->n == BRACKETS_MAX)
        return too_many_brackets(r, open, inside + 2);
    do {
        const char *from = ++r->p;
        struct range range;
        size_t len;
        const char *wrong = read_range(&r->p, &range, &len);
        if (wrong != NULL)
            return parse_refuse(r, -EINVAL, from, strcspn(from, ",[]"), wrong);
        if (range.last - range.now >= HOSTLIST_MAX)
            return too_many(r, from);
        count += (size_t)(range.last - range.now) + 1;
        longest = len > longest ? len : longest;
        if (count > HOSTLIST_MAX)
            return too_many(r, from);
    } while (*r->p == ',');
    r->p++;
    t->bracket[t->n].open = open + 1;
    bracket_restart(&t->bracket[t->n++]);
    t->names *= count; /* at most 2^16 * 2^16 */
    t->longest += longest;
    return t->names > HOSTLIST_MAX ? too_many(r, open) : 0;
}

/* Read one name with its brackets at r->p, which is not a separator. */
static int read_term(struct reader *r, struct term *t)
{
    const char *begin = r->p;
    t->n = 0;
    t->names = 1;
    t->longest = 0;
    for (;;) {
        const char *literal = r->p;
        while (hostlist_char_ok(*r->p))
            r->p++;
        t->literal[t->n] = literal;
        t->literal_len[t->n] = (size_t)(r->p - literal);
        t->longest += (size_t)(r->p - literal);
        if (*r->p != '[')
            break;
        int rc = read_bracket(r, t);
        if (rc < 0)
            return rc;
    }
    if (*r->p == ']')
        return parse_refuse(r, -EINVAL, r->p, 1, "is an unmatched ']'");
    if (*r->p != '\0' && !is_separator(*r->p))
        return parse_refuse(r, -EINVAL, r->p, 1, "is not allowed in a host name");
    if (t->longest > HOSTLIST_NAME_MAX)
        return parse_refuse(r, -EINVAL, begin, (size_t)(r->p - begin),
                            "makes a host name of more than 255 characters");
    return 0;
}

static bool at_term(struct reader *r)
{
    while (is_separator(*r->p))
        r->p++;
    return *r->p != '\0';
}

static bool term_advance(struct term *t)
{
    for (unsigned i = 0; i < t->n; i++)
        if (bracket_advance(&t->bracket[i == 0 ? t->n - 1 : i - 1]))
            return true;
    return false;
}

static int term_expand(struct term *t, struct hostlist *h)
{
    int rc;
    do {
        char name[HOSTLIST_NAME_MAX + 1];
        size_t len = 0;
        for (unsigned i = 0; i <= t->n; i++) {
            memcpy(name + len, t->literal[i], t->literal_len[i]);
            len += t->literal_len[i];
            if (i < t->n)
                len += (size_t)snprintf(name + len, sizeof(name) - len, "%0*" PRIu64,
                                        t->bracket[i].range.width, t->bracket[i].range.now);
        }
        rc = hostlist_append(h, name, len);
    } while (rc == 0 && term_advance(t));
    return rc;
}

static int check_all(struct reader *r)
{
    struct term t;
    size_t names = 0;
    while (at_term(r)) {
        const char *begin = r->p;
        int rc = read_term(r, &t);
        if (rc < 0)
            return rc;
        names += t.names;
        if (names > HOSTLIST_MAX)
            return too_many(r, begin);
    }
    return 0;
}

int hostlist_parse(struct hostlist **ret, const char *expr, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    struct reader r = {.expr = expr, .p = expr, .err = err};
    struct term t;
    int rc = check_all(&r);
    if (rc < 0)
        return rc;
    rc = hostlist_new(&h);
    for (r.p = expr; rc == 0 && at_term(&r);)
        if ((rc = read_term(&r, &t)) == 0)
            rc = term_expand(&t, h);
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory for a host list");
    *ret = DD_TAKE(h);
    return 0;
}
