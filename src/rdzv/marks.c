#include "rdzv/marks.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parse the line at *p, end its two parts by NUL, and advance *p. */
static int take_line(char **p, struct rdzv_mark *ret)
{
    char *line = *p;
    char *end = strchrnul(line, '\n');
    char *tab = memchr(line, '\t', (size_t)(end - line));
    if (tab == NULL || tab == line || tab + 1 == end || tab - line > RDZV_MARK_NAME ||
        end - tab - 1 > RDZV_MARK_WHY)
        return -EPROTO;
    *p = *end == '\n' ? end + 1 : end;
    *end = *tab = '\0';
    for (const char *c = line; c < end; c++)
        if (c != tab && ((unsigned char)*c < ' ' || *c == 127))
            return -EPROTO;
    *ret = (struct rdzv_mark){.name = line, .why = tab + 1};
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct rdzv_mark *)a)->name, ((const struct rdzv_mark *)b)->name);
}

static void drop_duplicates(struct rdzv_marks *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (n == 0 || strcmp(m->v[n - 1].name, m->v[i].name) != 0)
            m->v[n++] = m->v[i];
    m->n = n;
}

int rdzv_marks_parse(struct rdzv_marks *ret, const char *text)
{
    DD_AUTO(marks) struct rdzv_marks m = {0};
    size_t lines = 1;
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    m.text = strdup(text);
    m.v = calloc(lines, sizeof(*m.v));
    if (m.text == NULL || m.v == NULL)
        return -ENOMEM;
    for (char *p = m.text; *p != '\0'; m.n++)
        if (take_line(&p, &m.v[m.n]) < 0)
            return -EPROTO;
    qsort(m.v, m.n, sizeof(*m.v), by_name);
    drop_duplicates(&m);
    *ret = m;
    m = (struct rdzv_marks){0};
    return 0;
}

/* Return the position of the first name that is not less than `name`. */
static size_t lower_bound(const struct rdzv_marks *m, const char *name)
{
    size_t from = 0;
    size_t to = m->n;
    while (from < to) {
        const size_t mid = from + (to - from) / 2;
        if (strcmp(m->v[mid].name, name) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

static const char *why_of(const struct rdzv_marks *m, const char *name, bool begins)
{
    const size_t at = lower_bound(m, name);
    const size_t n = strlen(name);
    if (at == m->n || strncmp(m->v[at].name, name, n) != 0 || (!begins && m->v[at].name[n] != '\0'))
        return NULL;
    return m->v[at].why;
}

const char *rdzv_marks_why(const struct rdzv_marks *m, const char *name)
{
    char other[RDZV_MARK_NAME + 2];
    const size_t n = strlen(name);
    const size_t host = strcspn(name, ".");
    const char *why = why_of(m, name, false);
    if (why != NULL || n > RDZV_MARK_NAME || host == 0)
        return why;
    memcpy(other, name, host);
    if (host == n) /* "node3" matches "node3.cluster" */
        other[host] = '.';
    other[host == n ? host + 1 : host] = '\0';
    return why_of(m, other, host == n);
}

void rdzv_marks_clear(struct rdzv_marks *m)
{
    free(m->text);
    free(m->v);
    *m = (struct rdzv_marks){0};
}
