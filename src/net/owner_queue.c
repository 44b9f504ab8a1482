#include "net/owner_queue.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_AT_ONCE = 1024 };

struct owner_queue {
    struct event_base *base;
    struct net_peer *peer;
    struct event *turn;
    TAILQ_HEAD(, owner_query) waiting; /* for the next reading */
    size_t nwaiting;
    struct owner_query **v; /* sought in the list, sorted by line; has room for all that wait */
    size_t n, cap;
    FILE *list; /* NULL: none is being read */
    int family; /* AF_INET: the list is /proc/net/tcp; AF_INET6: /proc/net/tcp6 */
};

int owner_queue_new(struct owner_queue **ret, struct event_base *base, struct net_peer *peer)
{
    struct owner_queue *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    *s = (struct owner_queue){.base = base, .peer = peer};
    TAILQ_INIT(&s->waiting);
    *ret = s;
    return 0;
}

void owner_queue_free(struct owner_queue *s)
{
    if (s == NULL)
        return;
    if (s->turn != NULL)
        event_free(s->turn);
    if (s->list != NULL)
        (void)fclose(s->list);
    free(s->v);
    free(s);
}

void owner_query_forget(struct owner_query *q)
{
    struct owner_queue *s = q->queue;
    size_t i = 0;
    if (s == NULL)
        return;
    q->queue = NULL;
    if (!q->sought) {
        TAILQ_REMOVE(&s->waiting, q, entry);
        s->nwaiting--;
        return;
    }
    while (s->v[i] != q)
        i++;
    s->n--;
    memmove(&s->v[i], &s->v[i + 1], (s->n - i) * sizeof(s->v[0]));
}

static void owner_query_end(struct owner_query *q, int rc, uid_t uid)
{
    uid_t other = (uid_t)-1;
    rc = net_peer_judge(q->queue->peer, rc, uid, &other);
    owner_query_forget(q);
    q->answered(q, rc, other);
}

/* ---- one list ---- */

static int owner_queue_compare(const void *x, const void *y)
{
    const struct owner_query *const *a = x;
    const struct owner_query *const *b = y;
    return strcmp((*a)->line.text, (*b)->line.text);
}

/* The list of IPv4 sockets has no IPv6 address: a query with one gets a line that no socket has. */
static void owner_queue_open(struct owner_queue *s, int family)
{
    s->family = family;
    for (size_t i = 0; i < s->n; i++) {
        struct owner_query *q = s->v[i];
        q->line = (struct peer_line){0};
        if (family == AF_INET6 || q->local.sa.sa_family == AF_INET)
            peer_line_make(&q->line, family, &q->local, &q->remote);
    }
    if (s->n > 1)
        qsort(s->v, s->n, sizeof(s->v[0]), owner_queue_compare);
    s->list = fopen(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
}

/* Return a query about the socket of this line, "  17: LOCAL REMOTE STATE …"; NULL: none. */
static struct owner_query *owner_queue_find(const struct owner_queue *s, const char *line)
{
    const char *key = strchr(line, ':');
    size_t from = 0;
    size_t to = s->n;
    if (key == NULL || key[1] != ' ')
        return NULL;
    while (from < to) {
        const size_t i = from + (to - from) / 2;
        struct owner_query *q = s->v[i];
        const int order = strncmp(q->line.text, key + 2, q->line.len > 0 ? q->line.len : 1);
        if (order == 0)
            return q;
        if (order < 0)
            from = i + 1;
        else
            to = i;
    }
    return NULL;
}

/* Answer the queries about the sockets of the next lines. False: no more lines are needed or left.
 */
static bool owner_queue_read(struct owner_queue *s)
{
    char line[512];
    for (int i = 0; i < LINES_AT_ONCE && s->n > 0; i++) {
        struct owner_query *q;
        if (s->list == NULL || fgets(line, sizeof(line), s->list) == NULL)
            return false;
        while ((q = owner_queue_find(s, line)) != NULL) {
            uid_t uid = (uid_t)-1;
            const int rc = peer_line_read(&q->line, line, &uid);
            owner_query_end(q, rc <= 0 ? rc : -ENOENT, uid);
        }
    }
    return s->n > 0;
}

/* ---- turns of the loop ---- */

static void owner_queue_begin(struct owner_queue *s)
{
    struct owner_query *q;
    bool ipv4 = false;
    while ((q = TAILQ_FIRST(&s->waiting)) != NULL) {
        TAILQ_REMOVE(&s->waiting, q, entry);
        s->nwaiting--;
        q->sought = true;
        s->v[s->n++] = q;
        ipv4 = ipv4 || q->local.sa.sa_family == AF_INET;
    }
    owner_queue_open(s, ipv4 ? AF_INET : AF_INET6);
}

/* The queries that are left belong to no socket of this list; IPv6 sockets may have IPv4 peers. */
static void owner_queue_end_list(struct owner_queue *s)
{
    if (s->list != NULL)
        (void)fclose(DD_TAKE(s->list));
    if (s->n > 0 && s->family == AF_INET) {
        owner_queue_open(s, AF_INET6);
        return;
    }
    while (s->n > 0)
        owner_query_end(s->v[0], -ENOENT, (uid_t)-1);
}

static void owner_queue_on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct owner_queue *s = arg;
    const uint64_t began = dd_now_ns();
    (void)fd;
    (void)what;
    if (s->n == 0 && s->list == NULL)
        owner_queue_begin(s);
    if (!owner_queue_read(s))
        owner_queue_end_list(s);
    if (s->n > 0 || s->nwaiting > 0) {
        const struct timeval pause = dd_timeval(dd_now_ns() - began);
        (void)evtimer_add(s->turn, &pause);
    }
}

/* Make room for one more query, so that nothing can fail later. */
static int owner_queue_room(struct owner_queue *s)
{
    if (s->turn == NULL && (s->turn = evtimer_new(s->base, owner_queue_on_turn, s)) == NULL)
        return -ENOMEM;
    if (s->n + s->nwaiting < s->cap)
        return 0;
    const size_t cap = s->cap == 0 ? 64 : 2 * s->cap;
    struct owner_query **v = realloc(s->v, cap * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    s->v = v;
    s->cap = cap;
    return 0;
}

int owner_queue_ask(struct owner_queue *s, struct owner_query *q, const struct net_addr *local,
                    const struct net_addr *remote, uid_t *ret_uid)
{
    const struct timeval now = {0};
    int rc = net_peer_own_quick(s->peer, local, remote, ret_uid);
    if (rc != -EAGAIN)
        return rc;
    rc = owner_queue_room(s);
    if (rc < 0)
        return rc;
    q->queue = s;
    q->sought = false;
    q->local = *local;
    q->remote = *remote;
    TAILQ_INSERT_TAIL(&s->waiting, q, entry);
    s->nwaiting++;
    if (!evtimer_pending(s->turn, NULL))
        (void)evtimer_add(s->turn, &now);
    return -EINPROGRESS;
}
