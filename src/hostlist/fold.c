/* Fold names to an expression. Consecutive names that differ in one number become one bracket;
 * consecutive results that differ in one number before the bracket get a second bracket in front
 * (r1n[1-4],r2n[1-4] becomes r[1-2]n[1-4]). Names get at most two brackets:
 * the expansion of three differs in order from the list (see parse.c). */
#include "hostlist/list.h"

#include "base/num.h"

#include <errno.h>
#include <string.h>

enum { DIGITS_MAX = 18 }; /* longer numbers are not folded, so that sums fit into 64 bits */

/* Consecutive names of the list: the literal part, then the folded part. */
struct item {
    const char *head;
    size_t head_len;
    size_t tail; /* offset in the text of the level */
    size_t tail_len;
};

struct level {
    struct item *items;
    size_t n;
    struct dd_buf text; /* text of the tails */
};

static void dd_auto_level(struct level *l)
{
    free(l->items);
    dd_buf_done(&l->text);
}

static int level_new(struct level *l, size_t n)
{
    l->text = DD_BUF_INIT((size_t)HOSTLIST_MAX * (HOSTLIST_NAME_MAX + 3));
    l->items = calloc(n > 0 ? n : 1, sizeof(*l->items));
    return l->items == NULL ? -ENOMEM : 0;
}

/* The number that varies in a run: heads are before + number + after. */
struct frame {
    size_t before;
    size_t after;
};

static bool number_fits(const struct item *it, const struct frame *f)
{
    if (it->head_len <= f->before + f->after)
        return false;
    size_t n = it->head_len - f->before - f->after;
    for (size_t i = 0; i < n; i++)
        if (!hostlist_is_digit(it->head[f->before + i]))
            return false;
    return n <= DIGITS_MAX;
}

/* Find the only number in which two heads differ; for equal heads, their last number. */
static bool find_frame(const struct item *a, const struct item *b, struct frame *f)
{
    size_t min = a->head_len < b->head_len ? a->head_len : b->head_len;
    size_t before = 0;
    size_t after = 0;
    while (before < min && a->head[before] == b->head[before])
        before++;
    if (before == a->head_len && before == b->head_len)
        while (before > 0 && !hostlist_is_digit(a->head[before - 1]))
            before--;
    while (after < min - before &&
           a->head[a->head_len - 1 - after] == b->head[b->head_len - 1 - after])
        after++;
    while (before > 0 && hostlist_is_digit(a->head[before - 1]))
        before--;
    while (after > 0 && hostlist_is_digit(a->head[a->head_len - after]))
        after--;
    *f = (struct frame){.before = before, .after = after};
    return number_fits(a, f) && number_fits(b, f);
}

static bool same_tail(const struct level *l, const struct item *a, const struct item *b)
{
    return a->tail_len == b->tail_len &&
           (a->tail_len == 0 ||
            memcmp(l->text.data + a->tail, l->text.data + b->tail, a->tail_len) == 0);
}

static bool fold_fits(const struct level *l, const struct item *first, const struct item *it,
                      const struct frame *f)
{
    return same_tail(l, first, it) && number_fits(it, f) &&
           memcmp(first->head, it->head, f->before) == 0 &&
           memcmp(first->head + first->head_len - f->after, it->head + it->head_len - f->after,
                  f->after) == 0;
}

/* Return the number of items from i on that form a run; 1: none. */
static size_t run_length(const struct level *l, size_t i, struct frame *f)
{
    const struct item *it = l->items;
    if (i + 1 >= l->n || !same_tail(l, &it[i], &it[i + 1]) || !find_frame(&it[i], &it[i + 1], f))
        return 1;
    size_t n = 2;
    while (i + n < l->n && fold_fits(l, &it[i], &it[i + n], f))
        n++;
    return n;
}

struct number {
    const char *text;
    size_t len;
    uint64_t value;
};

static struct number fold_number_of(const struct item *it, const struct frame *f)
{
    struct number n = {.text = it->head + f->before, .len = it->head_len - f->before - f->after};
    char digits[DIGITS_MAX + 1];
    memcpy(digits, n.text, n.len);
    digits[n.len] = '\0';
    (void)dd_num_u64(digits, 0, UINT64_MAX, &n.value);
    return n;
}

static size_t digits_in(uint64_t v)
{
    size_t n = 1;
    while (v > 9) {
        v /= 10;
        n++;
    }
    return n;
}

/* True if b is the name that follows a in a range that starts with first. */
static bool continues(const struct number *first, const struct number *a, const struct number *b)
{
    size_t plain = digits_in(b->value);
    return b->value == a->value + 1 && b->len == (plain > first->len ? plain : first->len);
}

/* Append the numbers of n items as ranges, such as "1-3,7". */
static int write_ranges(struct dd_buf *out, const struct item *it, size_t n, const struct frame *f)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        struct number first = fold_number_of(&it[i], f);
        struct number last = first;
        size_t len = 1;
        for (; i + len < n; len++) {
            struct number next = fold_number_of(&it[i + len], f);
            if (!continues(&first, &last, &next))
                break;
            last = next;
        }
        rc = i > 0 ? dd_buf_puts(out, ",") : 0;
        if (rc == 0)
            rc = dd_buf_append(out, first.text, first.len);
        if (rc == 0 && len > 1)
            rc = dd_buf_puts(out, "-");
        if (rc == 0 && len > 1)
            rc = dd_buf_append(out, last.text, last.len);
        i += len;
    }
    return rc;
}

static int append_tail(struct dd_buf *out, const struct level *l, const struct item *it)
{
    return it->tail_len == 0 ? 0 : dd_buf_append(out, l->text.data + it->tail, it->tail_len);
}

/* Append to `to` the folded form of n items of `from`, starting at i. */
static int add_run(struct level *to, const struct level *from, size_t i, size_t n,
                   const struct frame *f)
{
    const struct item *it = &from->items[i];
    struct item *new = &to->items[to->n++];
    int rc = 0;
    *new = (struct item){.head = it->head, .head_len = it->head_len, .tail = to->text.len};
    if (n > 1) {
        new->head_len = f->before;
        rc = dd_buf_puts(&to->text, "[");
        if (rc == 0)
            rc = write_ranges(&to->text, it, n, f);
        if (rc == 0)
            rc = dd_buf_puts(&to->text, "]");
        if (rc == 0)
            rc = dd_buf_append(&to->text, it->head + it->head_len - f->after, f->after);
    }
    if (rc == 0)
        rc = append_tail(&to->text, from, it);
    new->tail_len = to->text.len - new->tail;
    return rc;
}

static int fold_level(struct level *to, const struct level *from)
{
    int rc = level_new(to, from->n);
    for (size_t i = 0; rc == 0 && i < from->n;) {
        struct frame f = {0};
        size_t n = run_length(from, i, &f);
        rc = add_run(to, from, i, n, &f);
        i += n;
    }
    return rc;
}

int hostlist_fold(const struct hostlist *h, struct dd_buf *out)
{
    DD_AUTO(level) struct level names = {0};
    DD_AUTO(level) struct level one = {0};
    DD_AUTO(level) struct level two = {0};
    int rc = level_new(&names, h->count);
    for (size_t i = 0; rc == 0 && i < h->count; i++) {
        const char *name = hostlist_nth(h, i);
        names.items[names.n++] = (struct item){.head = name, .head_len = strlen(name)};
    }
    if (rc == 0)
        rc = fold_level(&one, &names);
    if (rc == 0)
        rc = fold_level(&two, &one);
    size_t before = out->len;
    for (size_t i = 0; rc == 0 && i < two.n; i++) {
        const struct item *it = &two.items[i];
        rc = i > 0 ? dd_buf_puts(out, ",") : 0;
        if (rc == 0)
            rc = dd_buf_append(out, it->head, it->head_len);
        if (rc == 0)
            rc = append_tail(out, &two, it);
    }
    if (rc < 0)
        out->len = before;
    return rc;
}
