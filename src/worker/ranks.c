#include "worker/ranks.h"

#include "base/auto.h"
#include "base/num.h"
#include "base/strv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 65535 };

int rank_map_get(const struct rank_map *m, int rank)
{
    for (size_t i = m->n; i > 0; i--)
        if (m->v[i - 1].rank == rank)
            return m->v[i - 1].bits;
    return m->all;
}

bool rank_map_any(const struct rank_map *m)
{
    bool any = m->all != 0;
    for (size_t i = 0; i < m->n; i++)
        any = any || m->v[i].bits != 0;
    return any;
}

void rank_map_done(struct rank_map *m)
{
    free(m->v);
    *m = (struct rank_map){0};
}

static int bad_map(const char *text, const char *option, struct dd_err *err)
{
    return dd_err_set(
        err, -EINVAL,
        "%s: invalid value '%s': expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
        "one per local rank such as 0:3,1:2",
        option, text);
}

static int bad_list(const char *text, const char *option, struct dd_err *err)
{
    return dd_err_set(err, -EINVAL, "%s: invalid value '%s': expected local ranks such as 0,1,5",
                      option, text);
}

/* Split at every comma; keep empty pieces, which are invalid. */
static int pieces_of(struct dd_strv *out, const char *text)
{
    int rc = 0;
    for (;;) {
        size_t n = strcspn(text, ",");
        rc = dd_strv_pushn(out, text, n);
        if (rc < 0 || text[n] == '\0')
            return rc;
        text += n + 1;
    }
}

/* Parse "12:3". */
static int entry_parse(struct rank_bits *ret, char *s)
{
    char *colon = strchr(s, ':');
    if (colon == NULL)
        return -EINVAL;
    *colon = '\0';
    int rc = dd_num_int(s, 0, MAX_RANK, &ret->rank);
    return rc < 0 ? rc : dd_num_int(colon + 1, 0, 3, &ret->bits);
}

int rank_map_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err)
{
    struct rank_map m = {0};
    DD_AUTO(strv) struct dd_strv pieces = {0};
    if (text == NULL || *text == '\0' || dd_num_int(text, 0, 3, &m.all) == 0) {
        *ret = m;
        return 0;
    }
    if (pieces_of(&pieces, text) < 0 || (m.v = calloc(pieces.n, sizeof(*m.v))) == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (m.n = 0; m.n < pieces.n; m.n++)
        if (entry_parse(&m.v[m.n], pieces.v[m.n]) < 0) {
            rank_map_done(&m);
            return bad_map(text, option, err);
        }
    *ret = m;
    return 0;
}

static const char *trim(char *s)
{
    s += strspn(s, " \t");
    for (size_t n = strlen(s); n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'); n--)
        s[n - 1] = '\0';
    return s;
}

int rank_list_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err)
{
    struct rank_map m = {.all = 1};
    DD_AUTO(strv) struct dd_strv pieces = {0};
    if (text == NULL || *text == '\0') {
        *ret = m;
        return 0;
    }
    m.all = 0;
    if (pieces_of(&pieces, text) < 0 || (m.v = calloc(pieces.n, sizeof(*m.v))) == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (m.n = 0; m.n < pieces.n; m.n++) {
        m.v[m.n].bits = 1;
        if (dd_num_int(trim(pieces.v[m.n]), 0, MAX_RANK, &m.v[m.n].rank) < 0) {
            rank_map_done(&m);
            return bad_list(text, option, err);
        }
    }
    *ret = m;
    return 0;
}
