/* Unmodified workers prove nothing, so their machine is asked: this one directly, another one through
 * its agent. A connection is answered once the kernel of its machine has said that the socket
 * belongs to this user. */
#include "daemon/inner.h"

#include "net/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WAITING = 65536, ANSWER_S = 10 };

struct waiting {
    TAILQ_ENTRY(waiting) entry;
    struct admission *admission;
    int64_t id;
    const struct guest *guest; /* who was asked */
    struct store_conn *conn;
    struct event *timer;
    bool answered; /* no longer in the list; lives on until its connection is gone */
    char peer[NET_ADDR_TEXT + 8];
};

struct admission {
    struct daemon *daemon;
    struct net_peer *peer;
    struct net_iface *ifaces;
    size_t nifaces;
    TAILQ_HEAD(, waiting) waiting;
    size_t nwaiting;
    int64_t last_id;
    uint64_t refused;
};

int admission_new(struct admission **ret, struct daemon *d, struct dd_err *err)
{
    struct admission *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->daemon = d;
    TAILQ_INIT(&a->waiting);
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

static void waiting_end(struct waiting *w)
{
    if (w->answered)
        return;
    w->answered = true;
    TAILQ_REMOVE(&w->admission->waiting, w, entry);
    w->admission->nwaiting--;
    if (w->timer != NULL)
        event_free(w->timer);
    w->timer = NULL;
}

static void waiting_free(struct waiting *w)
{
    waiting_end(w);
    free(w);
}

/* The 1st, 2nd, 4th, 8th … refusal is told: one line each would be a gift to a flooder. */
static void refused(struct admission *a, const char *peer, const char *why)
{
    a->refused++;
    if ((a->refused & (a->refused - 1)) == 0)
        dd_log(a->daemon->cfg.log, DD_LOG_WARN,
               "store connection from %s refused (no. %llu): %s", peer,
               (unsigned long long)a->refused, why);
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

static void on_conn_gone(void *arg)
{
    waiting_free(arg);
}

static void on_no_answer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct waiting *w = arg;
    refused(w->admission, w->peer, "its node did not say whose it is");
    waiting_end(w);
    store_conn_close(w->conn); /* on_conn_gone follows */
}

static struct waiting *waiting_new(struct admission *a, const struct guest *g)
{
    struct timeval t = {.tv_sec = ANSWER_S};
    struct waiting *w = a->nwaiting < MAX_WAITING ? calloc(1, sizeof(*w)) : NULL;
    if (w == NULL)
        return NULL;
    w->admission = a;
    w->guest = g;
    w->id = ++a->last_id;
    TAILQ_INSERT_TAIL(&a->waiting, w, entry);
    a->nwaiting++;
    w->timer = evtimer_new(a->daemon->base, on_no_answer, w);
    if (w->timer == NULL || evtimer_add(w->timer, &t) < 0) {
        waiting_free(w);
        return NULL;
    }
    return w;
}

/* Asks the agent of the machine that the connection comes from. Takes fd. */
static void ask(struct admission *a, int fd, const struct net_addr *ours, const struct net_addr *remote)
{
    char mine[NET_ADDR_TEXT + 8];
    char theirs[NET_ADDR_TEXT + 8];
    (void)net_addr_text(ours, mine);
    (void)net_addr_text(remote, theirs);
    struct guest *g = guests_find_addr(a->daemon, remote);
    struct waiting *w = g != NULL ? waiting_new(a, g) : NULL;
    if (w == NULL) {
        refused(a, theirs, g == NULL ? "no node of this job has that address" : "too many at once");
        close(fd);
        return;
    }
    (void)snprintf(w->peer, sizeof(w->peer), "%s", theirs);
    if (store_server_adopt(a->daemon->store, fd, false, &w->conn, on_conn_gone, w) < 0) {
        waiting_free(w);
        return;
    }
    guest_send(g, &(struct msg){.type = MSG_WHOIS, .id = w->id, .local = theirs, .remote = mine});
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

void admission_worker(struct admission *a, int fd)
{
    struct net_addr ours;
    struct net_addr remote;
    uid_t uid;
    if (a->daemon->cfg.open_store) {
        (void)store_server_adopt(a->daemon->store, fd, true, NULL, NULL, NULL);
        return;
    }
    if (addresses(fd, &ours, &remote) < 0) {
        close(fd); /* has left already */
        return;
    }
    if (!is_this_machine(a, &remote)) {
        ask(a, fd, &ours, &remote);
        return;
    }
    int rc = net_peer_own(a->peer, &remote, &ours, &uid);
    if (rc == 0 && net_peer_is_connected(fd)) {
        (void)store_server_adopt(a->daemon->store, fd, true, NULL, NULL, NULL);
        return;
    }
    char text[NET_ADDR_TEXT + 8];
    char why[120] = "the kernel does not know whose it is";
    if (rc == 0)
        (void)snprintf(why, sizeof(why), "it was lost before its owner was known");
    if (rc == -EPERM)
        (void)snprintf(why, sizeof(why), "it belongs to uid %u, and this job to uid %u", (unsigned)uid,
                       (unsigned)geteuid());
    refused(a, net_addr_text(&remote, text), why);
    close(fd);
}

void admission_reply(struct admission *a, const struct guest *g, const struct msg *m)
{
    struct waiting *w;
    TAILQ_FOREACH(w, &a->waiting, entry)
        if (w->id == m->id && w->guest == g)
            break;
    if (w == NULL)
        return;
    waiting_end(w);
    const bool connected = net_peer_is_connected(store_conn_fd(w->conn));
    if (m->ok && connected) {
        store_conn_admit(w->conn);
        return;
    }
    refused(a, w->peer, m->ok ? "it was lost before its owner was known" : "its node says that it belongs to another user");
    store_conn_close(w->conn);
}

void admission_guest_gone(struct admission *a, const struct guest *g)
{
    struct waiting *w;
    struct waiting *next;
    for (w = TAILQ_FIRST(&a->waiting); w != NULL; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (w->guest != g)
            continue;
        waiting_end(w);
        store_conn_close(w->conn); /* frees it, soon */
    }
}

void admission_free(struct admission *a)
{
    if (a == NULL)
        return;
    net_peer_free(a->peer);
    free(a->ifaces);
    free(a);
}
