#include "daemon/join.h"

#include "base/io.h"
#include "rdzv/restart_ages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The job's history with earlier daemons, as an agent sends it. */
struct join_history {
    struct rdzv_members committed, planned;
    uint64_t ages[RESTART_AGES_MAX];
    int nages;
    struct charges charges;
};

static int join_parse_history(struct join_history *h, const struct msg_join *m, struct dd_err *err)
{
    h->nages = restart_ages_parse(h->ages, m->spent, err);
    if (h->nages < 0)
        return h->nages;
    for (int i = 0; i < h->nages; i++)
        h->ages[i] *= DD_NS_PER_MS;
    if (charges_parse(&h->charges, m->charges, 0) < 0)
        return dd_err_set(err, -EPROTO, "invalid field 'charges' in JOIN");
    int rc = rdzv_members_parse(&h->committed, m->committed, err);
    return rc < 0 ? rc : rdzv_members_parse(&h->planned, m->members, err);
}

/* True if the leader's own agent has found its own daemon while it probes for others: one machine
 * may have two names in the host list. */
static bool join_is_leader_probe(const struct session_set *set, const struct msg_join *m)
{
    const struct session *leader = set->leader;
    return leader != NULL && leader->id >= 0 && m->elsewhere && leader->pid == m->pid &&
           m->epoch == set->cfg.epoch && strcmp(leader->name, m->name) == 0;
}

static void join_step(struct job *j, struct session *s, const struct msg_join *m,
                      const struct join_history *h)
{
    dd_log(s->set->cfg.log, DD_LOG_DEBUG, "event=join node=%s index=%d slots=%d", s->name, m->index,
           m->slots);
    job_publish(j, &(struct journal_event){.kind = JOURNAL_JOIN,
                                           .node = s->name,
                                           .workers = m->slots,
                                           .address = link_peer(s->link)});
    job_step(j, &(struct rdzv_event){.kind = RDZV_JOIN,
                                     .id = s->id,
                                     .index = m->index,
                                     .nnodes = m->nnodes,
                                     .min_nodes = m->min_nodes,
                                     .epoch = m->epoch,
                                     .ages = h->ages,
                                     .nages = h->nages,
                                     .charges = &h->charges,
                                     .ended_well = m->ended_well,
                                     .elsewhere = m->elsewhere,
                                     .committed = &h->committed,
                                     .planned = &h->planned,
                                     .slots = m->slots,
                                     .name = s->name,
                                     .addr = m->addr,
                                     .unfit = m->unfit,
                                     .check = m->check,
                                     .text = m->text});
}

void join_take(struct job *j, struct session *s, const struct msg_join *m,
               join_accepted_f *accepted, void *arg)
{
    struct join_history h = {.committed = RDZV_MEMBERS_NONE, .planned = RDZV_MEMBERS_NONE};
    struct dd_err err = {0};
    if (s->id >= 0)
        return;
    if (job_redirect_addr(j)[0] != '\0') {
        session_send(s, MSG(PROBE_REQUEST, .addr = job_redirect_addr(j)));
        session_bye(s);
        return;
    }
    if (join_is_leader_probe(s->set, m)) {
        dd_log(s->set->cfg.log, DD_LOG_DEBUG, "event=found-itself node=%s", s->name);
        session_send(
            s, MSG(REFUSE, .epoch = s->set->cfg.epoch, .text = "this is the node's own daemon"));
        session_bye(s);
        return;
    }
    if (!hostlist_name_ok(m->name)) { /* no round with this node could be planned */
        char name[80], why[120];
        (void)snprintf(why, sizeof(why), "'%s' is not a valid host name",
                       dd_log_escape(name, sizeof(name), m->name, strlen(m->name)));
        session_refuse(s, why);
        return;
    }
    (void)snprintf(s->name, sizeof(s->name), "%s", m->name);
    s->pid = m->pid;
    if (s->set->nfree == 0) {
        char why[80];
        (void)snprintf(why, sizeof(why), "the job takes %d node%s, and as many have joined",
                       s->set->cfg.capacity, s->set->cfg.capacity == 1 ? "" : "s");
        session_refuse(s, why);
    } else if (join_parse_history(&h, m, &err) < 0) {
        session_refuse(s, err.text);
    } else if (session_set_addrs(s, m->addrs) < 0) {
        session_refuse(s, "the daemon is out of memory");
    } else {
        session_set_ports(s, m->ports);
        (void)session_take_id(s);
        accepted(arg, s, m);
        join_step(j, s, m, &h);
    }
    charges_clear(&h.charges);
    rdzv_members_clear(&h.committed);
    rdzv_members_clear(&h.planned);
}
