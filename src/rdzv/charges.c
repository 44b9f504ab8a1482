#include "rdzv/charges.h"

#include "base/auto.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 1000000, INDEX_MAX = 65535 };

static const uint64_t AGE_MAX_MS = UINT64_C(1) << 43; /* fits in nanoseconds, too */

static uint64_t age_within(uint64_t ms)
{
    return ms < AGE_MAX_MS ? ms : AGE_MAX_MS;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= ' ' && c != 127;
}

int charge_format(struct dd_buf *out, const struct charge *c)
{
    char why[CHARGES_WHY + 1];
    (void)snprintf(why, sizeof(why), "%s", c->why);
    for (char *p = why; *p != '\0'; p++)
        *p = is_plain(*p) ? *p : ' ';
    return dd_buf_printf(out, "%d %d %d %d %" PRIu64 " %" PRIu64 " %.*s\t%s\n", c->index,
                         c->n < COUNT_MAX ? c->n : COUNT_MAX,
                         c->fresh < COUNT_MAX ? c->fresh : COUNT_MAX, (int)c->rest,
                         age_within(c->age_ms), age_within(c->before_ms), CHARGES_NAME, c->name,
                         why) < 0
               ? -ENOMEM
               : 0;
}

/* Take a decimal number from min to max and the space after it. */
static int take_number(char **p, int64_t min, int64_t max, int64_t *ret)
{
    const bool minus = **p == '-';
    const char *digits = *p + minus;
    char *end;
    if (*digits < '0' || *digits > '9' || strspn(digits, "0123456789") > 15)
        return -EPROTO;
    const int64_t v = strtoll(*p, &end, 10);
    if (v < min || v > max || *end != ' ')
        return -EPROTO;
    *p = end + 1;
    *ret = v;
    return 0;
}

static int take_numbers(char **p, struct charge *c)
{
    const struct {
        int64_t min, max;
    } limits[] = {{-1, INDEX_MAX},       {1, COUNT_MAX},           {0, COUNT_MAX},
                  {0, CHARGE_RESTS - 1}, {0, (int64_t)AGE_MAX_MS}, {0, (int64_t)AGE_MAX_MS}};
    int64_t v[sizeof(limits) / sizeof(limits[0])];
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (take_number(p, limits[i].min, limits[i].max, &v[i]) < 0)
            return -EPROTO;
    *c = (struct charge){.index = (int)v[0],
                         .n = (int)v[1],
                         .fresh = (int)v[2],
                         .rest = (enum charge_rest)v[3],
                         .age_ms = (uint64_t)v[4],
                         .before_ms = (uint64_t)v[5]};
    return 0;
}

/* Parse the line at *p, end its texts by NUL, and advance *p. */
static int take_line(char **p, struct charge *c)
{
    char *end = strchr(*p, '\n');
    if (end == NULL || take_numbers(p, c) < 0)
        return -EPROTO;
    char *tab = *p <= end ? memchr(*p, '\t', (size_t)(end - *p)) : NULL;
    if (tab == NULL || tab == *p || tab - *p > CHARGES_NAME || end - tab - 1 > CHARGES_WHY)
        return -EPROTO;
    for (const char *q = *p; q < end; q++)
        if (q != tab && !is_plain(*q))
            return -EPROTO;
    *tab = *end = '\0';
    c->name = *p;
    c->why = tab + 1;
    *p = end + 1;
    return 0;
}

int charges_parse(struct charges *ret, const char *text, uint64_t age_ms)
{
    DD_AUTO(charges) struct charges c = {.text = strdup(text)};
    if (c.text == NULL)
        return -ENOMEM;
    for (char *p = c.text; *p != '\0'; c.count++) {
        if (c.count == CHARGES_MAX || take_line(&p, &c.v[c.count]) < 0)
            return -EPROTO;
        struct charge *last = &c.v[c.count];
        last->age_ms = age_within(last->age_ms + age_within(age_ms));
        last->before_ms = age_within(last->before_ms + age_within(age_ms));
    }
    *ret = c;
    c.text = NULL;
    return 0;
}

void charges_clear(struct charges *c)
{
    free(c->text);
    *c = (struct charges){0};
}

/* ---- the file ---- */

#define FILE_MARK "ddrun-charges 1 "

int charges_file_format(struct dd_buf *out, const char *id, uint64_t now_ms, const char *charges)
{
    const size_t n = strlen(id);
    for (size_t i = 0; i < n; i++)
        if (!is_plain(id[i]))
            return -EINVAL;
    if (n == 0 || n > CHARGES_FILE_ID)
        return -EINVAL;
    return dd_buf_printf(out, FILE_MARK "%" PRIu64 " %s\n%s", age_within(now_ms), id, charges) < 0
               ? -ENOMEM
               : 0;
}

/* A file with a later time counts as new, since the clocks of nodes differ. */
int charges_file_parse(const char *text, const char *id, uint64_t now_ms, const char **ret,
                       uint64_t *ret_age_ms)
{
    static const char mark[] = FILE_MARK;
    const size_t len = strlen(id);
    DD_AUTO(charges) struct charges c = {0};
    if (strncmp(text, mark, sizeof(mark) - 1) != 0)
        return -EPROTO;
    const char *p = text + sizeof(mark) - 1;
    const size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 15 || p[digits] != ' ')
        return -EPROTO;
    const uint64_t written_ms = strtoull(p, NULL, 10);
    p += digits + 1;
    if (len == 0 || strncmp(p, id, len) != 0 || p[len] != '\n')
        return -EPROTO;
    int rc = charges_parse(&c, p + len + 1, 0);
    if (rc < 0)
        return rc;
    *ret = p + len + 1;
    *ret_age_ms = now_ms > written_ms ? now_ms - written_ms : 0;
    return 0;
}
