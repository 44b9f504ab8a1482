#include "worker/line_fold.h"

#include "report/stacks.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 32, NUMBERS_MAX = 64 };

/* A number in the first line of a group, and the range of this number in all lines of the group. */
struct fold_number {
    size_t at, len;                           /* place in the first line */
    char least[NUMBER_MAX], most[NUMBER_MAX]; /* smallest and largest, as written */
};

struct fold_group {
    uint64_t hash; /* hash of the text between the numbers */
    uint64_t due_ns;
    unsigned char *members; /* a bit for each worker */
    int count;
    bool foldable;
    char *line; /* line of the first worker, without its end */
    size_t len;
    struct fold_number *numbers;
    size_t n_numbers;
};

struct line_fold {
    int *ranks;
    uint64_t *last; /* number of the group of each worker's last line; 0: none */
    int n;
    uint64_t window_ns;
    struct fold_group *queue; /* ring of LINE_FOLD_GROUPS groups */
    uint64_t first, end;      /* numbers of the first group and of the next one, from 1 on */
    size_t bytes;
};

static struct fold_group *group_at(const struct line_fold *f, uint64_t number)
{
    return &f->queue[number % LINE_FOLD_GROUPS];
}

static size_t members_size(const struct line_fold *f)
{
    return ((size_t)f->n + 7) / 8;
}

static bool is_member(const struct fold_group *g, int i)
{
    return (g->members[i / 8] >> (i % 8) & 1) != 0;
}

static size_t group_size(const struct line_fold *f, const struct fold_group *g)
{
    return g->len + members_size(f) + g->n_numbers * sizeof(*g->numbers);
}

static void group_done(struct fold_group *g)
{
    free(g->members);
    free(g->line);
    free(g->numbers);
    *g = (struct fold_group){0};
}

int line_fold_new(struct line_fold **ret, const int *ranks, int n, uint64_t window_ns)
{
    struct line_fold *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    *f = (struct line_fold){.n = n,
                            .window_ns = window_ns,
                            .first = 1,
                            .end = 1,
                            .ranks = calloc((size_t)n + 1, sizeof(*f->ranks)),
                            .last = calloc((size_t)n + 1, sizeof(*f->last)),
                            .queue = calloc(LINE_FOLD_GROUPS, sizeof(*f->queue))};
    if (f->ranks == NULL || f->last == NULL || f->queue == NULL) {
        line_fold_free(f);
        return -ENOMEM;
    }
    memcpy(f->ranks, ranks, (size_t)n * sizeof(*ranks));
    *ret = f;
    return 0;
}

void line_fold_clear(struct line_fold *f)
{
    for (; f->first < f->end; f->first++)
        group_done(group_at(f, f->first));
    f->bytes = 0;
}

void line_fold_free(struct line_fold *f)
{
    if (f == NULL)
        return;
    if (f->queue != NULL)
        line_fold_clear(f);
    free(f->queue);
    free(f->last);
    free(f->ranks);
    free(f);
}

/* ---- numbers ---- */

/* Return the length of the number at p, "-2", "2.31" or "1e-05"; 0: none. */
static size_t number_len(const char *p, size_t n, bool sign)
{
    size_t i = sign && n > 1 && p[0] == '-' ? 1 : 0;
    const size_t digits = i;
    while (i < n && isdigit((unsigned char)p[i]))
        i++;
    if (i == digits)
        return 0;
    if (i + 1 < n && p[i] == '.' && isdigit((unsigned char)p[i + 1]))
        for (i++; i < n && isdigit((unsigned char)p[i]);)
            i++;
    size_t e = i < n && (p[i] == 'e' || p[i] == 'E') ? i + 1 : 0;
    if (e > 0 && e < n && (p[e] == '-' || p[e] == '+'))
        e++;
    if (e > 0 && e < n && isdigit((unsigned char)p[e]))
        for (i = e; i < n && isdigit((unsigned char)p[i]);)
            i++;
    return i;
}

/* True if a '-' after this character is the sign of a number, not a hyphen. */
static bool sign_follows(char c)
{
    return strchr(" \t=:,([{", c) != NULL;
}

/* Find the numbers of a line, at most NUMBERS_MAX of fewer than NUMBER_MAX bytes. Return how many,
 * and the hash of the text between them. */
static size_t find_numbers(const char *line, size_t len, struct fold_number *ret,
                           uint64_t *ret_hash)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    size_t count = 0;
    for (size_t i = 0; i < len;) {
        const size_t n = count < NUMBERS_MAX
                             ? number_len(line + i, len - i, i == 0 || sign_follows(line[i - 1]))
                             : 0;
        const bool taken = n > 0 && n < NUMBER_MAX;
        if (taken) {
            struct fold_number *k = &ret[count++];
            *k = (struct fold_number){.at = i, .len = n};
            memcpy(k->least, line + i, n);
            memcpy(k->most, line + i, n);
        }
        for (size_t end = i + (n > 0 ? n : 1); i < end; i++)
            if (!taken)
                hash = (hash ^ (unsigned char)line[i]) * UINT64_C(0x100000001b3);
        if (taken)
            hash = (hash ^ 0x100) * UINT64_C(0x100000001b3);
    }
    *ret_hash = hash;
    return count;
}

/* True if the texts between the numbers of both lines are equal. */
static bool same_text(const struct fold_group *g, const char *line, size_t len,
                      const struct fold_number *numbers, size_t n)
{
    size_t a = 0, b = 0;
    if (n != g->n_numbers)
        return false;
    for (size_t i = 0; i <= n; i++) {
        const size_t a_end = i < n ? g->numbers[i].at : g->len;
        const size_t b_end = i < n ? numbers[i].at : len;
        if (a_end - a != b_end - b || memcmp(g->line + a, line + b, a_end - a) != 0)
            return false;
        a = i < n ? a_end + g->numbers[i].len : a_end;
        b = i < n ? b_end + numbers[i].len : b_end;
    }
    return true;
}

/* Compare two numbers by value, and equal ones ("1", "1.0") by their text. */
static int compare_numbers(const char *a, const char *b)
{
    const double x = strtod(a, NULL), y = strtod(b, NULL);
    if (x < y || x > y)
        return x < y ? -1 : 1;
    const size_t m = strlen(a), n = strlen(b);
    return m != n ? (m < n ? -1 : 1) : strcmp(a, b);
}

/* ---- lines ---- */

static void group_join(struct fold_group *g, int i)
{
    g->members[i / 8] |= (unsigned char)(1U << (i % 8));
    g->count++;
}

struct fold_line {
    const char *text;
    size_t len;
    uint64_t hash;
    const struct fold_number *numbers;
    size_t n;
};

/* Let worker i's line join the first equal group behind the group of the worker's last line. False:
 * there is none. */
static bool fold_join(struct line_fold *f, int i, const struct fold_line *l)
{
    for (uint64_t k = f->last[i] >= f->first ? f->last[i] + 1 : f->first; k < f->end; k++) {
        struct fold_group *g = group_at(f, k);
        if (g->hash != l->hash || !g->foldable || !same_text(g, l->text, l->len, l->numbers, l->n))
            continue;
        for (size_t m = 0; m < l->n; m++) {
            struct fold_number *to = &g->numbers[m];
            if (compare_numbers(l->numbers[m].least, to->least) < 0)
                memcpy(to->least, l->numbers[m].least, NUMBER_MAX);
            if (compare_numbers(l->numbers[m].most, to->most) > 0)
                memcpy(to->most, l->numbers[m].most, NUMBER_MAX);
        }
        group_join(g, i);
        f->last[i] = k;
        return true;
    }
    return false;
}

int line_fold_add(struct line_fold *f, int i, const void *line, size_t len, uint64_t now_ns)
{
    struct fold_number numbers[NUMBERS_MAX];
    uint64_t hash = 0;
    const bool foldable = len <= LINE_FOLD_LINE;
    const size_t n = foldable ? find_numbers(line, len, numbers, &hash) : 0;
    if (foldable && fold_join(f, i, &(struct fold_line){line, len, hash, numbers, n}))
        return 0;
    if (f->end - f->first == LINE_FOLD_GROUPS)
        return -ENOMEM; /* the caller first takes the lines that are due */
    struct fold_group g = {.hash = hash,
                           .due_ns = now_ns + f->window_ns,
                           .foldable = foldable,
                           .len = len,
                           .n_numbers = n,
                           .members = calloc(members_size(f), 1),
                           .line = malloc(len + 1),
                           .numbers = calloc(n + 1, sizeof(*numbers))};
    if (g.members == NULL || g.line == NULL || g.numbers == NULL) {
        group_done(&g);
        return -ENOMEM;
    }
    memcpy(g.line, line, len);
    memcpy(g.numbers, numbers, n * sizeof(*numbers));
    group_join(&g, i);
    f->last[i] = f->end;
    f->bytes += group_size(f, &g);
    *group_at(f, f->end++) = g;
    return 0;
}

static int put_ranks(const struct line_fold *f, const struct fold_group *g, struct dd_buf *out)
{
    struct rank_set set = {0};
    int rc = 0;
    for (int i = 0; i < f->n && rc == 0; i++)
        if (is_member(g, i))
            rc = rank_set_add(&set, f->ranks[i], f->ranks[i]);
    if (rc == 0)
        rc = dd_buf_puts(out, "[");
    if (rc == 0)
        rc = rank_set_text(&set, out);
    rank_set_done(&set);
    return rc < 0 ? rc : dd_buf_puts(out, "] ");
}

static int put_folded(const struct line_fold *f, const struct fold_group *g, struct dd_buf *out)
{
    size_t at = 0;
    int rc = put_ranks(f, g, out);
    for (size_t i = 0; i < g->n_numbers && rc == 0; i++) {
        const struct fold_number *k = &g->numbers[i];
        rc = dd_buf_append(out, g->line + at, k->at - at);
        if (rc == 0)
            rc = dd_buf_puts(out, k->least);
        if (rc == 0 && strcmp(k->least, k->most) != 0)
            rc = dd_buf_printf(out, "…%s", k->most);
        at = k->at + k->len;
    }
    if (rc == 0)
        rc = dd_buf_append(out, g->line + at, g->len - at);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

int line_fold_take(struct line_fold *f, uint64_t now_ns, bool all, struct dd_buf *out)
{
    if (line_fold_empty(f) || (!all && line_fold_due(f) > now_ns))
        return 0;
    struct fold_group *g = group_at(f, f->first);
    const int rc = put_folded(f, g, out);
    f->bytes -= group_size(f, g);
    group_done(g);
    f->first++;
    return rc < 0 ? rc : 1;
}

uint64_t line_fold_due(const struct line_fold *f)
{
    const struct fold_group *g = group_at(f, f->first);
    if (line_fold_empty(f))
        return 0;
    const bool full = f->bytes > LINE_FOLD_MAX || f->end - f->first >= LINE_FOLD_GROUPS;
    return full || g->count == f->n || !g->foldable ? 1 : g->due_ns;
}

bool line_fold_empty(const struct line_fold *f)
{
    return f->first == f->end;
}
