#include "report/rank_set.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_SHOWN = 60 /* bytes of a short text */ };

static int rank_set_insert(struct rank_set *s, size_t at, struct rank_range r)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 4 : s->cap * 2;
        struct rank_range *v = realloc(s->v, cap * sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    memmove(&s->v[at + 1], &s->v[at], (s->n - at) * sizeof(s->v[0]));
    s->v[at] = r;
    s->n++;
    return 0;
}

/* Ranks usually come in ascending order, so the search starts at the end. */
int rank_set_add(struct rank_set *s, int first, int last)
{
    size_t at = s->n;
    while (at > 0 && s->v[at - 1].first > first)
        at--;
    if (at > 0 && s->v[at - 1].last >= first - 1)
        at--;
    else if (rank_set_insert(s, at, (struct rank_range){first, last}) < 0)
        return -ENOMEM;
    struct rank_range *r = &s->v[at];
    if (last > r->last)
        r->last = last;
    size_t more = at + 1;
    while (more < s->n && s->v[more].first <= r->last + 1) {
        if (s->v[more].last > r->last)
            r->last = s->v[more].last;
        more++;
    }
    memmove(&s->v[at + 1], &s->v[more], (s->n - more) * sizeof(s->v[0]));
    s->n -= more - at - 1;
    return 0;
}

bool rank_set_has_any(const struct rank_set *s, int first, int n)
{
    for (size_t i = 0; i < s->n; i++)
        if (first <= s->v[i].last && s->v[i].first - first < n)
            return n > 0;
    return false;
}

bool rank_set_has(const struct rank_set *s, int rank)
{
    return rank_set_has_any(s, rank, 1);
}

size_t rank_set_count(const struct rank_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += (size_t)(s->v[i].last - s->v[i].first) + 1;
    return n;
}

int rank_set_nth(const struct rank_set *s, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t here = (size_t)(s->v[i].last - s->v[i].first) + 1;
        if (n < here)
            return s->v[i].first + (int)n;
        n -= here;
    }
    return -1;
}

/* Append ranges until the text has `most` bytes. Return how many ranges, or -errno. */
static int rank_set_put(const struct rank_set *s, size_t most, struct dd_buf *out)
{
    const size_t from = out->len;
    size_t i = 0;
    for (; i < s->n && out->len - from < most; i++) {
        int rc = dd_buf_printf(out, "%s%d", i > 0 ? "," : "", s->v[i].first);
        if (rc == 0 && s->v[i].last > s->v[i].first)
            rc = dd_buf_printf(out, "-%d", s->v[i].last);
        if (rc < 0)
            return rc;
    }
    return (int)i;
}

int rank_set_text(const struct rank_set *s, struct dd_buf *out)
{
    int n = rank_set_put(s, SIZE_MAX, out);
    return n < 0 ? n : 0;
}

int rank_set_text_short(const struct rank_set *s, struct dd_buf *out)
{
    int n = rank_set_put(s, RANKS_SHOWN, out);
    if (n >= 0 && (size_t)n < s->n)
        return dd_buf_printf(out, ",... (%zu ranks)", rank_set_count(s));
    return n < 0 ? n : 0;
}

int rank_set_name(const struct rank_set *s, struct dd_buf *out)
{
    if (s->n == 0)
        return dd_buf_puts(out, "ranks");
    int rc = dd_buf_puts(out, rank_set_count(s) > 1 ? "ranks " : "rank ");
    return rc < 0 ? rc : rank_set_text_short(s, out);
}

static const char *rank_set_number(const char *p, int *ret)
{
    long n = 0;
    const char *at = p;
    while (*at >= '0' && *at <= '9' && n < RANK_SET_MAX)
        n = n * 10 + (*at++ - '0');
    *ret = (int)n;
    return at == p || n >= RANK_SET_MAX ? NULL : at;
}

int rank_set_parse(struct rank_set *s, const char *text)
{
    const char *p = text;
    for (;;) {
        int first;
        int last;
        p = rank_set_number(p, &first);
        last = first;
        if (p != NULL && *p == '-')
            p = rank_set_number(p + 1, &last);
        if (p == NULL || last < first)
            return -EINVAL;
        const int rc = rank_set_add(s, first, last);
        if (rc < 0 || *p == '\0')
            return rc;
        if (*p++ != ',')
            return -EINVAL;
    }
}

void rank_set_done(struct rank_set *s)
{
    free(s->v);
    *s = (struct rank_set){0};
}
