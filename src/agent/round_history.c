#include "agent/round_history.h"

#include "base/auto.h"
#include "base/io.h"
#include "rdzv/charges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copy addresses. An empty address stands for `first`, the address of the first node. */
static int copy_addrs(struct dd_strv *to, const struct dd_strv *addrs, const char *first)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < addrs->n && i <= RDZV_SUCCESSORS; i++)
        rc = dd_strv_push(to, addrs->v[i][0] != '\0' ? addrs->v[i] : first);
    return rc;
}

static void set_charges(struct round_history *h, const char *text)
{
    free(h->charges);
    h->charges = text[0] != '\0' ? strdup(text) : NULL;
    h->charges_at_ns = dd_now_ns();
}

/* charges_at_ns may wrap below 0, as the charges may precede the boot; differences remain right. */
void round_history_add_charges(struct round_history *h, const char *text, uint64_t age_ms)
{
    set_charges(h, text);
    h->charges_at_ns -= age_ms * DD_NS_PER_MS;
}

int round_history_record(struct round_history *h, const struct msg_plan *m, int nnodes,
                         struct dd_err *err)
{
    DD_AUTO(free) char *members = strdup(m->members);
    DD_AUTO(rdzv_members) struct rdzv_members last = RDZV_MEMBERS_NONE;
    if (members == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = rdzv_members_parse(&last, members, err);
    if (rc == 0 && last.n != nnodes)
        rc = dd_err_set(err, -EPROTO, "malformed plan: %d node%s, but %d member%s", nnodes,
                        nnodes == 1 ? "" : "s", last.n, last.n == 1 ? "" : "s");
    if (rc == 0) {
        h->nages = restart_ages_parse(h->ages_ms, m->spent, err);
        h->ages_at_ns = dd_now_ns();
        rc = h->nages < 0 ? h->nages : 0;
        h->nages = rc < 0 ? 0 : h->nages;
    }
    if (rc == 0)
        set_charges(h, m->charges);
    dd_strv_done(&h->addrs);
    if (rc == 0)
        rc = copy_addrs(&h->addrs, m->addrs, m->addr);
    if (rc < 0)
        return rc;
    free(h->members);
    h->members = DD_TAKE(members);
    rdzv_members_clear(&h->last);
    h->last = last;
    last = RDZV_MEMBERS_NONE;
    return 0;
}

/* A spare has no vote: `members` and `committed` remain unchanged. */
int round_history_observe(struct round_history *h, const struct msg_round_members *m,
                          struct dd_err *err)
{
    DD_AUTO(rdzv_members) struct rdzv_members last = RDZV_MEMBERS_NONE;
    DD_AUTO(strv) struct dd_strv addrs = {0};
    int rc = rdzv_members_parse(&last, m->members, err);
    if (rc == 0 && copy_addrs(&addrs, m->addrs, m->addr) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        return rc;
    dd_strv_done(&h->addrs);
    h->addrs = addrs;
    addrs = (struct dd_strv){0};
    rdzv_members_clear(&h->last);
    h->last = last;
    last = RDZV_MEMBERS_NONE;
    return 0;
}

void round_history_commit(struct round_history *h)
{
    char *committed = h->members != NULL ? strdup(h->members) : NULL;
    if (committed == NULL)
        return;
    free(h->committed);
    h->committed = committed;
}

void round_history_write_ages(const struct round_history *h, struct dd_buf *out)
{
    uint64_t ages[RESTART_AGES_MAX];
    for (int i = 0; i < h->nages; i++)
        ages[i] = h->ages_ms[i] + (dd_now_ns() - h->ages_at_ns) / DD_NS_PER_MS;
    (void)restart_ages_format(out, ages, h->nages);
}

/* Malformed text is omitted. */
void round_history_write_charges(const struct round_history *h, struct dd_buf *out)
{
    DD_AUTO(charges) struct charges c = {0};
    const uint64_t age_ms = (dd_now_ns() - h->charges_at_ns) / DD_NS_PER_MS;
    if (h->charges == NULL || charges_parse(&c, h->charges, age_ms) < 0)
        return;
    for (int i = 0; i < c.count; i++)
        (void)charge_format(out, &c.v[i]);
}

void round_history_done(struct round_history *h)
{
    free(h->charges);
    free(h->members);
    free(h->committed);
    rdzv_members_clear(&h->last);
    dd_strv_done(&h->addrs);
}
