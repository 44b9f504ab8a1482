#include "daemon/admission.h"

#include "net/peer_uid.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SENT_MAX = 64 };

struct admission {
    struct admission_cfg cfg;
    struct net_peer *peer;
    struct owner_queue *owners;
    struct net_iface *ifaces; /* of this machine; NULL: not yet needed */
    size_t nifaces;
    bool warned; /* the user was warned that the interfaces cannot be listed */
    int64_t last_id;
    uint64_t refused;
};

int admission_new(struct admission **ret, const struct admission_cfg *cfg, struct dd_err *err)
{
    struct admission *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for the admission of workers");
    a->cfg = *cfg;
    if (net_peer_new(&a->peer) < 0 || owner_queue_new(&a->owners, cfg->base, a->peer) < 0) {
        admission_free(a);
        return dd_err_set(err, -ENOMEM, "out of memory for the admission of workers");
    }
    *ret = a;
    return 0;
}

/* True if `remote` is an address of this machine. List the interfaces only when a connection is not
 * over loopback: in a job on one node, all are. */
static bool admission_is_local(struct admission *a, const struct net_addr *remote)
{
    struct dd_err err = {0};
    if (net_addr_is_loopback(remote))
        return true;
    if (a->ifaces == NULL && net_ifaces(&a->ifaces, &a->nifaces, &err) < 0 && !a->warned) {
        a->warned = true;
        dd_log(a->cfg.log, DD_LOG_WARN, "%s", err.text);
    }
    for (size_t i = 0; i < a->nifaces; i++)
        if (net_addr_same_host(&a->ifaces[i].addr, remote))
            return true;
    return false;
}

static int admission_addresses(int fd, struct net_addr *ours, struct net_addr *remote)
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

static enum owner admission_owner(struct admission_query *q, int rc, uid_t uid)
{
    if (rc == 0)
        return OWNER_SELF;
    q->why = "the kernel does not report its owner";
    if (rc != -EPERM)
        return OWNER_UNKNOWN;
    q->why = NULL;
    q->uid = uid;
    return OWNER_OTHER;
}

static void admission_on_owner(struct owner_query *here, int rc, uid_t uid)
{
    struct admission_query *q = (struct admission_query *)(void *)((char *)here -
                                                                   offsetof(struct admission_query,
                                                                            here));
    q->answered(q, admission_owner(q, rc, uid));
}

static enum owner admission_ask_kernel(struct admission *a, struct admission_query *q)
{
    uid_t uid = (uid_t)-1;
    q->here.answered = admission_on_owner;
    const int rc = owner_queue_ask(a->owners, &q->here, &q->remote, &q->ours, &uid);
    return rc == -EINPROGRESS ? OWNER_PENDING : admission_owner(q, rc, uid);
}

static void admission_send(struct admission *a, struct admission_node *n)
{
    struct admission_query *q;
    TAILQ_FOREACH (q, &n->queries, entry) {
        if (q->id != 0)
            continue;
        if (n->nsent >= SENT_MAX)
            return;
        char mine[NET_ADDR_TEXT + 8];
        char theirs[NET_ADDR_TEXT + 8];
        (void)net_addr_text(&q->ours, mine);
        (void)net_addr_text(&q->remote, theirs);
        q->id = ++a->last_id;
        n->nsent++;
        a->cfg.ask(a->cfg.arg, n, q->id, theirs, mine);
    }
}

enum owner admission_ask(struct admission *a, struct admission_query *q, int fd)
{
    q->why = "the connection was lost before its owner was known";
    if (admission_addresses(fd, &q->ours, &q->remote) < 0)
        return OWNER_UNKNOWN;
    if (admission_is_local(a, &q->remote))
        return admission_ask_kernel(a, q);
    q->why = "its address belongs to no node that has joined this job";
    q->node = a->cfg.find_node(a->cfg.arg, &q->remote);
    if (q->node == NULL)
        return OWNER_UNKNOWN;
    TAILQ_INSERT_TAIL(&q->node->queries, q, entry);
    admission_send(a, q->node);
    return OWNER_PENDING;
}

void admission_forget(struct admission_query *q)
{
    owner_query_forget(&q->here);
    if (q->node == NULL)
        return;
    TAILQ_REMOVE(&q->node->queries, q, entry);
    q->node = NULL;
}

void admission_node_init(struct admission_node *n)
{
    TAILQ_INIT(&n->queries);
    n->nsent = 0;
}

/* Take a reply; it may belong to a query that was cancelled. */
void admission_reply(struct admission *a, struct admission_node *n, int64_t id, bool is_ours)
{
    struct admission_query *q;
    n->nsent -= n->nsent > 0;
    TAILQ_FOREACH (q, &n->queries, entry)
        if (q->id == id)
            break;
    if (q != NULL) {
        admission_forget(q);
        q->why = "its node reports another owner, or none";
        q->answered(q, is_ours ? OWNER_SELF : OWNER_OTHER);
    }
    admission_send(a, n);
}

void admission_node_gone(struct admission_node *n)
{
    struct admission_query *q;
    while ((q = TAILQ_FIRST(&n->queries)) != NULL) {
        admission_forget(q);
        q->why = "its node left the job";
        q->answered(q, OWNER_UNKNOWN);
    }
}

/* Log the 1st, 2nd, 4th, 8th … refusal, so that a flood cannot fill the log. */
void admission_refuse(struct admission *a, const struct admission_query *q, const char *why)
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
        (void)snprintf(other, sizeof(other), "it belongs to uid %u, the job to uid %u",
                       (unsigned)q->uid, (unsigned)geteuid());
        why = other;
    }
    dd_log(a->cfg.log, DD_LOG_WARN, "store connection from %s refused (no. %llu): %s",
           net_addr_text(&q->remote, peer), (unsigned long long)a->refused, why);
    a->cfg.refused(a->cfg.arg, a->refused, &q->remote, uid, why);
}

void admission_free(struct admission *a)
{
    if (a == NULL)
        return;
    owner_queue_free(a->owners);
    net_peer_free(a->peer);
    free(a->ifaces);
    free(a);
}
