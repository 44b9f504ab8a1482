/* Unmodified workers prove nothing, so their machine is asked: this one directly, another one
 * through its agent. An agent has a bounded number of questions at a time, so that a flood from its
 * node neither fills its link nor takes all of its time; each node has questions of its own. */
#include "daemon/inner.h"

#include "net/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { ASKED_AT_ONCE = 64 };

struct admission {
    struct daemon *daemon;
    struct net_peer *peer;
    struct net_iface *ifaces;
    size_t nifaces;
    int64_t last_id;
    uint64_t refused;
};

int admission_new(struct admission **ret, struct daemon *d, struct dd_err *err)
{
    struct admission *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->daemon = d;
    int rc = net_ifaces(&a->ifaces, &a->nifaces, err);
    if (rc == 0 && net_peer_new(&a->peer) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        admission_free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

static bool is_this_machine(const struct admission *a, const struct net_addr *remote)
{
    if (net_addr_is_loopback(remote))
        return true;
    for (size_t i = 0; i < a->nifaces; i++)
        if (net_addr_same_host(&a->ifaces[i].addr, remote))
            return true;
    return false;
}

static int addresses(int fd, struct net_addr *ours, struct net_addr *remote)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0 ||
        net_addr_from_sockaddr(ours, (struct sockaddr *)&ss, len) < 0)
        return -EINVAL;
    len = sizeof(ss);
    if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0)
        return -EINVAL;
    return net_addr_from_sockaddr(remote, (struct sockaddr *)&ss, len);
}

static enum owner ask_kernel(struct admission *a, struct question *q)
{
    uid_t uid;
    int rc = net_peer_own(a->peer, &q->remote, &q->ours, &uid);
    if (rc == 0)
        return OWNER_SELF;
    q->why = "the kernel does not know whose it is";
    if (rc != -EPERM)
        return OWNER_UNKNOWN;
    q->why = NULL;
    q->uid = uid;
    return OWNER_OTHER;
}

static void send_questions(struct admission *a, struct guest *g)
{
    struct question *q;
    TAILQ_FOREACH (q, &g->questions, entry) {
        if (q->id != 0)
            continue;
        if (g->nasked >= ASKED_AT_ONCE)
            return;
        char mine[NET_ADDR_TEXT + 8];
        char theirs[NET_ADDR_TEXT + 8];
        (void)net_addr_text(&q->ours, mine);
        (void)net_addr_text(&q->remote, theirs);
        q->id = ++a->last_id;
        g->nasked++;
        guest_send(g, MSG(WHOIS, .id = q->id, .local = theirs, .remote = mine));
    }
}

enum owner admission_ask(struct admission *a, struct question *q, int fd)
{
    q->why = "it was lost before its owner was known";
    if (addresses(fd, &q->ours, &q->remote) < 0)
        return OWNER_UNKNOWN;
    if (is_this_machine(a, &q->remote))
        return ask_kernel(a, q);
    q->why = "no node of this job has that address";
    q->guest = guests_find_addr(a->daemon, &q->remote);
    if (q->guest == NULL)
        return OWNER_UNKNOWN;
    TAILQ_INSERT_TAIL(&q->guest->questions, q, entry);
    send_questions(a, q->guest);
    return OWNER_ASKED;
}

void admission_forget(struct question *q)
{
    if (q->guest == NULL)
        return;
    TAILQ_REMOVE(&q->guest->questions, q, entry);
    q->guest = NULL;
}

/* A question that was forgotten is still being asked. */
void admission_reply(struct admission *a, struct guest *g, const struct msg_whois_reply *m)
{
    struct question *q;
    g->nasked -= g->nasked > 0;
    TAILQ_FOREACH (q, &g->questions, entry)
        if (q->id == m->id)
            break;
    if (q != NULL) {
        admission_forget(q);
        q->why = "its node says that it belongs to another user";
        q->answered(q, m->ok ? OWNER_SELF : OWNER_OTHER);
    }
    send_questions(a, g);
}

void admission_guest_gone(struct guest *g)
{
    struct question *q;
    while ((q = TAILQ_FIRST(&g->questions)) != NULL) {
        admission_forget(q);
        q->why = "its node has left";
        q->answered(q, OWNER_UNKNOWN);
    }
}

/* The 1st, 2nd, 4th, 8th … refusal is logged: one line each would be a gift to a flooder. */
void admission_refuse(struct admission *a, const struct question *q, const char *why)
{
    char peer[NET_ADDR_TEXT + 8];
    char other[120];
    a->refused++;
    if ((a->refused & (a->refused - 1)) != 0)
        return;
    if (why == NULL)
        why = q->why;
    const uid_t *uid = why == NULL ? &q->uid : NULL;
    if (why == NULL) {
        (void)snprintf(other, sizeof(other), "it belongs to uid %u, and this job to uid %u",
                       (unsigned)q->uid, (unsigned)geteuid());
        why = other;
    }
    dd_log(a->daemon->cfg.log, DD_LOG_WARN, "store connection from %s refused (no. %llu): %s",
           net_addr_text(&q->remote, peer), (unsigned long long)a->refused, why);
    events_refused(a->daemon, a->refused, &q->remote, uid, why);
}

void admission_free(struct admission *a)
{
    if (a == NULL)
        return;
    net_peer_free(a->peer);
    free(a->ifaces);
    free(a);
}
