#include "rdzv/members.h"

#include "base/num.h"
#include "hostlist/hostlist.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 1 << 30 }; /* limit of rounds and restarts, with room to increment */

int64_t rdzv_term(int64_t epoch)
{
    return epoch < 0 ? 0 : epoch / RDZV_EPOCH_STEP;
}

int64_t rdzv_next_epoch(int64_t epoch, int index)
{
    return (rdzv_term(epoch) + 1) * RDZV_EPOCH_STEP + index;
}

bool rdzv_members_newer(const struct rdzv_members *a, const struct rdzv_members *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->epoch >= 0 && a->round > b->round;
}

bool rdzv_members_same(const struct rdzv_members *a, const struct rdzv_members *b)
{
    return a->epoch == b->epoch && (a->epoch < 0 || a->round == b->round);
}

void rdzv_members_clear(struct rdzv_members *m)
{
    free(m->index);
    *m = RDZV_MEMBERS_NONE;
}

int rdzv_members_copy(struct rdzv_members *ret, const struct rdzv_members *m)
{
    int *index = calloc((size_t)m->n + 1, sizeof(*index));
    if (index == NULL)
        return -ENOMEM;
    if (m->n > 0)
        memcpy(index, m->index, (size_t)m->n * sizeof(*index));
    free(ret->index);
    *ret = *m;
    ret->index = index;
    return 0;
}

int rdzv_members_format(struct dd_buf *out, const struct rdzv_members *m)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    if (m->epoch < 0)
        return dd_buf_printf(out, "%s", "");
    int rc = hostlist_new(&h);
    for (int i = 0; i < m->n && rc == 0; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", m->index[i]);
        rc = hostlist_push(h, name);
    }
    if (rc == 0)
        rc = dd_buf_printf(out, "%" PRId64 " %d %d %d ", m->epoch, m->round, m->restarts, m->tie);
    return rc < 0 ? rc : hostlist_fold(h, out);
}

/* Parse a number up to max and a blank. Returns the text after it; NULL: invalid. */
static const char *members_number(const char *text, uint64_t max, uint64_t *ret)
{
    const char *blank = text == NULL ? NULL : strchr(text, ' ');
    char word[24];
    if (blank == NULL || (size_t)(blank - text) >= sizeof(word))
        return NULL;
    memcpy(word, text, (size_t)(blank - text));
    word[blank - text] = '\0';
    return dd_num_u64(word, 0, max, ret) < 0 ? NULL : blank + 1;
}

static int take_indexes(struct rdzv_members *m, const char *list, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    if (hostlist_parse(&h, list, NULL) < 0 || hostlist_count(h) == 0 ||
        hostlist_count(h) > PLAN_MAX_NODES)
        return dd_err_set(err, -EPROTO, "invalid list of round members '%.80s'", list);
    m->index = calloc(hostlist_count(h), sizeof(*m->index));
    if (m->index == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (m->n = 0; m->n < (int)hostlist_count(h); m->n++) {
        const char *name = hostlist_nth(h, (size_t)m->n);
        uint64_t index;
        if (name[0] != 'n' || dd_num_u64(name + 1, 0, PLAN_MAX_NODES - 1, &index) < 0)
            return dd_err_set(err, -EPROTO, "invalid round member '%.80s'", name);
        m->index[m->n] = (int)index;
    }
    return 0;
}

int rdzv_members_parse(struct rdzv_members *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(rdzv_members) struct rdzv_members m = RDZV_MEMBERS_NONE;
    uint64_t v[4] = {0};
    static const uint64_t max[4] = {UINT64_C(1) << 52, COUNT_MAX, COUNT_MAX, PLAN_MAX_NODES - 1};
    const char *rest = text;
    if (text[0] == '\0') {
        *ret = m;
        return 0;
    }
    for (int i = 0; i < 4; i++)
        rest = members_number(rest, max[i], &v[i]);
    if (rest == NULL)
        return dd_err_set(err, -EPROTO, "invalid list of round members '%.80s'", text);
    int rc = take_indexes(&m, rest, err);
    if (rc < 0)
        return rc;
    m.epoch = (int64_t)v[0];
    m.round = (int)v[1];
    m.restarts = (int)v[2];
    m.tie = (int)v[3];
    *ret = m;
    m = RDZV_MEMBERS_NONE;
    return 0;
}
