#include "doctor/look.h"

#include "base/io.h"
#include "base/num.h"
#include "doctor/fabric.h"
#include "doctor/pair.h"
#include "net/addr.h"
#include "net/handshake_pool.h"
#include "net/listen.h"
#include "net/loop.h"
#include "node/cpu.h"
#include "node/gpu.h"
#include "rdzv/elect.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    PROBES_MAX = 2,
    HELLO_MS = 5000,
    IFACE_MS = 1500,
    CALLERS_MAX = 4096,
    PROBE_BYTES = 65536,
    ANSWER_TEXT = 40 + NET_ADDR_TEXT + 8 + PAIR_TOKEN
};

/* ---- this node alone ---- */

static void look_put(json_t *o, const char *name, json_t *value)
{
    (void)json_object_set_new(o, name, value);
}

static json_t *look_text(const char *s)
{
    json_t *v = json_string(s != NULL ? s : "");
    return v != NULL ? v : json_string("?"); /* the string is not UTF-8 */
}

static json_t *look_soft_limit(int resource)
{
    struct rlimit l;
    bool none = getrlimit((__rlimit_resource_t)resource, &l) < 0 || l.rlim_cur == RLIM_INFINITY;
    return json_integer(none ? -1 : (json_int_t)l.rlim_cur);
}

static void look_put_limits(json_t *o)
{
    look_put(o, "nofile", look_soft_limit(RLIMIT_NOFILE));
    look_put(o, "memlock", look_soft_limit(RLIMIT_MEMLOCK));
    look_put(o, "nproc", look_soft_limit(RLIMIT_NPROC));
}

/* Check /dev/shm, and write and remove a temporary file, as Python programs do. */
static void look_put_room(json_t *o, const char *tmp)
{
    struct statvfs fs;
    char path[4096];
    char why[400] = "";
    static const char zeros[PROBE_BYTES];
    look_put(
        o, "shm_free",
        json_integer(statvfs("/dev/shm", &fs) == 0 ? (json_int_t)(fs.f_bavail * fs.f_frsize) : -1));
    (void)snprintf(path, sizeof(path), "%s/ddrun-doctor-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    const int rc = fd < 0 ? -errno : dd_write_full(fd, zeros, sizeof(zeros));
    if (rc < 0)
        (void)snprintf(why, sizeof(why), "%.200s: %s", tmp != NULL ? tmp : "/tmp", strerror(-rc));
    if (fd >= 0) {
        close(fd);
        (void)unlink(path);
    }
    look_put(o, "tmp", look_text(why));
}

static bool look_has_infiniband(void)
{
    DIR *d = opendir("/sys/class/infiniband");
    bool any = false;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        any |= e->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return any;
}

static void look_put_devices(json_t *o, char *const *env)
{
    struct node_cpus cpus = {0};
    struct node_gpus gpus = {0};
    if (node_cpus_get(&cpus, NULL) == 0) {
        look_put(o, "cpus", json_integer(cpus.count));
        look_put(o, "cpus_online", json_integer(cpus.online));
    }
    node_cpus_done(&cpus);
    look_put(o, "infiniband", json_boolean(look_has_infiniband()));
    look_put(o, "fabric", look_text(fabric_detect("")));
    if (node_gpus_count(&gpus, env, "", NULL) == 0)
        look_put(o, "gpus", json_integer(gpus.count));
}

static void look_put_kernel(json_t *o)
{
    DD_AUTO(buf) struct dd_buf scope = DD_BUF_INIT(64);
    int value = 0;
    if (dd_read_file("/proc/sys/kernel/yama/ptrace_scope", &scope, NULL) == 0 &&
        dd_buf_str(&scope) != NULL)
        value = atoi(dd_buf_str(&scope));
    look_put(o, "ptrace_scope", json_integer(value));
}

static void look_put_variable(json_t *list, const char *name, const char *value, const char *why)
{
    (void)json_array_append_new(
        list, json_pack("{s:s,s:o,s:s}", "name", name, "value", look_text(value), "why", why));
}

/* True if an interface has this name; begin: or a name that begins with it. */
static bool look_is_interface(const struct net_iface *ifs, size_t n, const char *name, bool begin)
{
    const size_t len = strlen(name) + (begin ? 0 : 1);
    for (size_t i = 0; i < n; i++)
        if (strncmp(ifs[i].name, name, len) == 0)
            return true;
    return false;
}

/* Report variables of a shell or a job script that mislead programs. */
static void look_put_variables(json_t *o, char *const *env, const struct net_iface *ifs, size_t n)
{
    static const char *const left[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR",
                                       "MASTER_PORT"};
    static const char *const names[] = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
                                        "TP_SOCKET_IFNAME"};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
        if (dd_env_get(env, left[i]) != NULL && dd_env_get(env, "DDRUN_NODES") == NULL)
            look_put_variable(list, left[i], dd_env_get(env, left[i]), "left");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = dd_env_get_nonempty(env, names[i]);
        char first[16];
        if (value == NULL || *value == '^' || *value == '=' || strlen(value) >= sizeof(first))
            continue;
        (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(value, ",:"), value);
        /* Src: NCCL 2.23-2.30, NCCL_SOCKET_IFNAME is a list of prefixes. */
        if (!look_is_interface(ifs, n, first, strcmp(names[i], "NCCL_SOCKET_IFNAME") == 0))
            look_put_variable(list, names[i], value, "interface");
    }
    if (dd_env_get(env, "CUDA_VISIBLE_DEVICES") != NULL &&
        *dd_env_get(env, "CUDA_VISIBLE_DEVICES") == '\0')
        look_put_variable(list, "CUDA_VISIBLE_DEVICES", "", "empty");
    look_put(o, "variables", list);
}

static void look_put_network(json_t *o, char *const *env)
{
    struct net_iface *ifs = NULL;
    size_t n = 0;
    char address[NET_ADDR_TEXT];
    json_t *list = json_array();
    (void)net_ifaces(&ifs, &n, NULL);
    for (size_t i = 0; i < n; i++)
        if (!ifs[i].loopback)
            (void)json_array_append_new(list, look_text(net_addr_host(&ifs[i].addr, address)));
    look_put(o, "addresses", list);
    look_put_variables(o, env, ifs, n);
    free(ifs);
}

/* Resolve a node's name as other programs do. */
static void look_put_name(json_t *list, const struct alloc *a, int to)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    json_t *addresses = json_array();
    char address[NET_ADDR_TEXT];
    int rc = getaddrinfo(hostlist_nth(a->nodes, (size_t)to), NULL, &hints, &all);
    const char *why = rc == 0 ? "" : rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
    for (const struct addrinfo *i = rc == 0 ? all : NULL; i != NULL; i = i->ai_next) {
        struct net_addr addr;
        if (net_addr_from_sockaddr(&addr, i->ai_addr, i->ai_addrlen) == 0)
            (void)json_array_append_new(addresses, look_text(net_addr_host(&addr, address)));
    }
    if (rc == 0)
        freeaddrinfo(all);
    (void)json_array_append_new(
        list, json_pack("{s:i,s:o,s:s}", "to", to, "addresses", addresses, "error", why));
}

static void look_put_names(json_t *o, const struct alloc *a)
{
    json_t *list = json_array();
    const int next = a->index >= 0 ? (a->index + 1) % a->nnodes : 0;
    if (a->nnodes > 1 && a->index >= 0)
        look_put_name(list, a, next);
    if (a->nnodes > 1 && a->index > 0 && next != 0)
        look_put_name(list, a, 0);
    look_put(o, "names", list);
}

static json_t *look_here(const struct doctor_cfg *cfg)
{
    const struct alloc *a = cfg->alloc;
    struct dd_err err = {0};
    json_t *o = json_object();
    look_put(o, "ddrun-doctor", json_integer(1));
    look_put(o, "node",
             look_text(a->index >= 0 ? hostlist_nth(a->nodes, (size_t)a->index) : cfg->hostname));
    look_put(o, "index", json_integer(a->index));
    look_put(o, "version", look_text(cfg->version));
    look_put(o, "hostname", look_text(cfg->hostname));
    look_put_limits(o);
    look_put_room(o, dd_env_get_nonempty(cfg->env, "TMPDIR"));
    look_put_devices(o, cfg->env);
    look_put_kernel(o);
    look_put_network(o, cfg->env);
    look_put_names(o, a);
    if (cfg->iface != NULL && net_iface_check(cfg->iface, &err) < 0)
        look_put(o, "iface_error", look_text(err.text));
    return o;
}

/* ---- connections to two other nodes ---- */

struct caller {
    LIST_ENTRY(caller) entry;
    struct meet *meet;
    struct link *link;
    bool counts; /* included in `expected` until the node closes the link, because it may not have
                    read the answer earlier */
};

struct probe {
    struct meet *meet;
    int to;
    char id[96];
    struct link_find *find;
    struct link *link;
    uint64_t began_ns, asked_ns;
    struct net_addr workers; /* address of the peer's workers; len 0: unknown */
    struct net_addr peer;    /* address of the link */
    struct pair_offer offer;
    bool waits;     /* "go" of the first node is still expected */
    json_t *answer; /* element of "probes"; NULL: the probe is not over */
};

struct meet {
    const struct doctor_cfg *cfg;
    struct event_base *base;
    struct event *limit;
    struct handshake_pool *handshakes;
    struct net_key key;
    struct net_key_input own_key, probe_key[PROBES_MAX];
    char id[96];
    LIST_HEAD(, caller) callers;
    int nprobes, expected, fd;
    bool released; /* all nodes measure now */
    bool *came;
    json_t *came_list;
    struct probe probes[PROBES_MAX];
    struct pair_server server;
};

static void look_id_of(char out[96], const char *id, int index)
{
    (void)snprintf(out, 96, "doctor.%.64s.%d", id, index);
}

static void look_end_if_done(struct meet *m)
{
    for (int i = 0; i < m->nprobes; i++)
        if (m->probes[i].answer == NULL || m->probes[i].waits)
            return;
    if (m->expected == 0)
        event_base_loopbreak(m->base);
}

static void look_caller_free(struct caller *c)
{
    LIST_REMOVE(c, entry);
    link_free(c->link);
    free(c);
}

/* Write the workers' address of this node; "": --iface is not given, or has no address here. */
static void look_put_iface_addr(const struct meet *m, char out[NET_ADDR_TEXT])
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    struct net_addr addr;
    size_t n = 0;
    out[0] = '\0';
    if (m->cfg->iface != NULL && net_ifaces(&ifs, &n, NULL) == 0 &&
        net_iface_addr(ifs, n, m->cfg->iface, &addr) == 0)
        (void)net_addr_host(&addr, out);
}

/* With --net: release the other nodes once all of them have reached this one, the first. */
static void look_release_all(struct meet *m)
{
    struct caller *c;
    if (!m->cfg->net || m->cfg->alloc->index != 0 ||
        json_array_size(m->came_list) + 1 < (size_t)m->cfg->alloc->nnodes)
        return;
    m->released = true;
    LIST_FOREACH (c, &m->callers, entry)
        (void)link_send(c->link, FRAME_CONTROL, "go", 2);
}

/* Answer a node that has proved the key: send the time, the workers' address, and what the node
 * needs to measure the connection. */
static void look_on_question(void *arg, struct link *l, const struct frame *f)
{
    struct caller *c = arg;
    struct meet *m = c->meet;
    char now[ANSWER_TEXT];
    char addr[NET_ADDR_TEXT];
    char offer[NET_ADDR_TEXT + 8 + PAIR_TOKEN];
    int from;
    if (f->type != FRAME_CONTROL ||
        dd_num_int(link_node(l), 0, m->cfg->alloc->nnodes - 1, &from) < 0)
        return;
    look_put_iface_addr(m, addr);
    /* only the previous node measures the connection to this one */
    const bool offers = from ==
                        (m->cfg->alloc->index + m->cfg->alloc->nnodes - 1) % m->cfg->alloc->nnodes;
    const struct pair_server none = {0};
    if (pair_offer(offers ? &m->server : &none, addr, offer, sizeof(offer)) < 0)
        offer[0] = '\0';
    int n = snprintf(now, sizeof(now), "%llu %s", (unsigned long long)dd_now_real_ns(), offer);
    (void)link_send(l, FRAME_CONTROL, now, (size_t)n);
    if (m->came[from])
        return;
    m->came[from] = true;
    (void)json_array_append_new(m->came_list, json_integer(from));
    c->counts = from ==
                    (m->cfg->alloc->index + m->cfg->alloc->nnodes - 1) % m->cfg->alloc->nnodes ||
                m->cfg->alloc->index == 0;
    look_release_all(m);
}

static void look_on_caller_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct caller *c = arg;
    struct meet *m = c->meet;
    (void)l;
    (void)clean;
    (void)why;
    m->expected -= c->counts; /* not earlier: the peer closes the link after reading the answer */
    look_caller_free(c);
    look_end_if_done(m);
}

static void look_on_caller(void *arg, struct link *l)
{
    struct meet *m = arg;
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        link_free(l);
        return;
    }
    *c = (struct caller){.meet = m, .link = l};
    LIST_INSERT_HEAD(&m->callers, c, entry);
    link_set_cb(l, &(struct link_cb){
                       .on_frame = look_on_question, .on_close = look_on_caller_close, .arg = c});
}

static void look_probe_over(struct probe *p, const char *error, int64_t offset_ns, uint64_t took_ns)
{
    char address[NET_ADDR_TEXT] = "";
    if (p->answer == NULL)
        p->answer = json_pack(
            "{s:i,s:o,s:o,s:I,s:I}", "to", p->to, "address",
            look_text(p->link != NULL ? net_addr_host(link_peer(p->link), address) : ""), "error",
            look_text(error), "offset_ns", (json_int_t)offset_ns, "took_ns", (json_int_t)took_ns);
    p->waits = p->waits && error[0] == '\0';
    look_end_if_done(p->meet);
}

/* Close the link before this node measures: the peer waits for the close, and nothing is left to
 * send. */
static void look_hang_up(struct probe *p)
{
    p->waits = false;
    link_free(p->link);
    p->link = NULL;
    look_end_if_done(p->meet);
}

static void look_on_answer(void *arg, struct link *l, const struct frame *f)
{
    struct probe *p = arg;
    char said[ANSWER_TEXT] = "";
    uint64_t theirs;
    uint64_t now = dd_now_ns();
    if (f->type != FRAME_CONTROL || f->len >= sizeof(said))
        return;
    if (p->answer != NULL) { /* the message is "go" */
        p->meet->released = true;
        look_hang_up(p);
        return;
    }
    memcpy(said, f->data, f->len);
    char *offer = said + strcspn(said, " ");
    if (*offer == ' ')
        *offer++ = '\0';
    if (dd_num_u64(said, 0, INT64_MAX, &theirs) < 0 || pair_offer_parse(&p->offer, offer) < 0)
        return;
    p->peer = *link_peer(l);
    if (net_addr_parse(&p->workers, p->offer.address, net_addr_port(link_peer(l))) < 0)
        p->workers.len = 0;
    uint64_t mine = dd_now_real_ns() -
                    (now - p->asked_ns) / 2; /* local time at which the answer was sent */
    look_probe_over(p, "", (int64_t)theirs - (int64_t)mine, now - p->began_ns);
    if (!p->waits)
        look_hang_up(p);
}

static void look_on_lost(void *arg, struct link *l, bool clean, const char *why)
{
    struct probe *p = arg;
    (void)l;
    (void)clean;
    p->waits = false;
    look_probe_over(p, why, 0, 0);
    link_free(p->link);
    p->link = NULL;
}

static void look_on_found(void *arg, struct link *l)
{
    struct probe *p = arg;
    link_find_free(p->find);
    p->find = NULL;
    p->link = l;
    p->asked_ns = dd_now_ns();
    link_set_cb(l,
                &(struct link_cb){.on_frame = look_on_answer, .on_close = look_on_lost, .arg = p});
    (void)link_send(l, FRAME_CONTROL, "?", 1);
}

static void look_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct meet *m = arg;
    (void)fd;
    (void)what;
    for (int i = 0; i < m->nprobes; i++)
        look_probe_over(&m->probes[i],
                        m->probes[i].find != NULL ? link_find_status(m->probes[i].find)
                                                  : "connected, but no answer in time",
                        0, 0);
    event_base_loopbreak(m->base);
}

/* Fill `ports` with the port of --master-port, or with a sample of the ports that jobs use. Return
 * the number of ports. */
static size_t look_ports_of(const struct meet *m, const char *id, uint16_t ports[ELECT_PORTS])
{
    const struct alloc *a = m->cfg->alloc;
    elect_ports(id, 0, ports, ELECT_PORTS);
    if (a->nports == 1)
        ports[0] = a->ports[0];
    return a->nports == 1 ? 1 : ELECT_PORTS;
}

static void look_begin_probe(struct meet *m, int to)
{
    const struct alloc *a = m->cfg->alloc;
    struct probe *p = &m->probes[m->nprobes];
    struct dd_err err = {0};
    uint16_t ports[ELECT_PORTS];
    char me[16];
    *p = (struct probe){
        .meet = m, .to = to, .began_ns = dd_now_ns(), .waits = m->cfg->net && to == 0};
    look_id_of(p->id, m->cfg->id, to);
    const size_t nports = look_ports_of(m, p->id, ports);
    m->probe_key[m->nprobes] = m->cfg->key_in;
    m->probe_key[m->nprobes].job_id = p->id;
    (void)snprintf(me, sizeof(me), "%d", a->index);
    const struct link_find_cfg cfg = {
        .job_id = p->id,
        .node = me,
        .host = to == 0 && a->host_addr != NULL ? a->host_addr : hostlist_nth(a->nodes, (size_t)to),
        .try_scontrol = a->on_slurm,
        .ports = ports,
        .nports = nports,
        .key_in = &m->probe_key[m->nprobes]};
    m->nprobes++;
    if (link_find_start(&p->find, m->base, &cfg, look_on_found, p, &err) < 0)
        look_probe_over(p, err.text, 0, 0);
}

/* Listen for other nodes, and set "listen_error". < 0: no port is free, or out of memory. */
static int look_listen_here(struct meet *m, json_t *o)
{
    uint16_t ports[ELECT_PORTS];
    uint16_t port = 0;
    struct dd_err err = {0};
    m->fd = net_listen(NULL, ports, look_ports_of(m, m->id, ports), &port, &err);
    look_put(o, "listen_error", look_text(m->fd < 0 ? err.text : ""));
    if (m->fd < 0)
        return -1;
    const struct handshake_pool_cfg cfg = {
        .base = m->base,
        .accept = {.job_id = m->id, .key = &m->key, .key_in = &m->own_key, .timeout_ms = HELLO_MS},
        .fd = m->fd,
        .most = CALLERS_MAX,
        .on_link = look_on_caller,
        .arg = m};
    return handshake_pool_new(&m->handshakes, &cfg, &err);
}

static bool look_find_key(struct meet *m, json_t *o)
{
    struct dd_err err = {0};
    m->own_key = m->cfg->key_in;
    m->own_key.job_id = m->id;
    int rc = net_key_for_leader(&m->key, &m->own_key, &err);
    look_put(o, "key", look_text(rc == 0 ? m->key.source : ""));
    look_put(o, "key_error", look_text(rc == 0 ? "" : err.text));
    return rc == 0;
}

/* Close all connections: other nodes wait for that before they measure. */
static void look_meet_close(struct meet *m)
{
    while (!LIST_EMPTY(&m->callers))
        look_caller_free(LIST_FIRST(&m->callers));
    for (int i = 0; i < m->nprobes; i++) {
        link_find_free(m->probes[i].find);
        link_free(m->probes[i].link);
        m->probes[i].find = NULL;
        m->probes[i].link = NULL;
    }
    handshake_pool_free(m->handshakes);
    m->handshakes = NULL;
    if (m->limit != NULL)
        event_free(m->limit);
    m->limit = NULL;
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
    if (m->base != NULL)
        event_base_free(m->base); /* also closes connections that a callback has freed */
    m->base = NULL;
}

static void look_meet_done(struct meet *m)
{
    look_meet_close(m);
    pair_server_done(&m->server, 0);
    net_key_cleanup(&m->key, &m->own_key);
    explicit_bzero(&m->key, sizeof(m->key));
    free(m->came);
}

/* Check whether this node's --iface reaches the workers' address of the probed node. No process
 * needs to listen: a connection that is refused, or reset by a listener that is being closed, has
 * reached the node. */
static void look_try_iface(const struct probe *p)
{
    const char *name = p->meet->cfg->iface;
    char address[NET_ADDR_TEXT];
    if (name == NULL || p->answer == NULL || p->workers.len == 0)
        return;
    const int rc = net_iface_reaches(name, &p->workers, IFACE_MS);
    const bool reached = rc == 0 || rc == -ECONNREFUSED || rc == -ECONNRESET;
    look_put(p->answer, "iface", look_text(name));
    look_put(p->answer, "iface_address", look_text(net_addr_host(&p->workers, address)));
    look_put(p->answer, "iface_error", look_text(reached ? "" : strerror(-rc)));
}

unsigned doctor_late_ms(unsigned limit_ms)
{
    return limit_ms < DOCTOR_START_MS ? limit_ms : DOCTOR_START_MS;
}

/* Measure the connection to the next node. */
static void look_measure(struct meet *m, json_t *o)
{
    const struct probe *p = &m->probes[0];
    struct pair_result r = {0};
    struct dd_err err = {0};
    char address[NET_ADDR_TEXT] = "";
    if (m->nprobes == 0 || p->answer == NULL || p->peer.len == 0)
        return; /* the next node was not reached, which is a finding of its own */
    struct net_addr to = p->workers.len != 0 ? p->workers : p->peer;
    net_addr_set_port(&to, p->offer.port);
    if (p->offer.port == 0)
        (void)dd_err_set(&err, -ENOENT, "that node did not start its measurement server");
    else
        (void)pair_measure(&r, &to, m->cfg->iface, p->offer.token, &err);
    look_put(o, "net",
             json_pack("{s:i,s:o,s:o,s:i,s:I,s:I,s:I}", "to", p->to, "address",
                       look_text(net_addr_host(&to, address)), "error", look_text(err.text),
                       "round_trips", r.round_trips, "latency_ns", (json_int_t)r.latency_ns,
                       "bytes", (json_int_t)r.bytes, "took_ns", (json_int_t)r.took_ns));
}

/* Wait until the previous node has measured the connection to this one, also if the next node is
 * down. */
static void look_await_previous(struct meet *m)
{
    const struct alloc *a = m->cfg->alloc;
    const unsigned late_ms = m->released ? 0 : doctor_late_ms(m->cfg->limit_ms);
    if (m->came[(a->index + a->nnodes - 1) % a->nnodes])
        pair_server_done(&m->server, late_ms + PAIR_MS_MAX);
}

static void look_start_server(struct meet *m, json_t *o)
{
    struct dd_err err = {0};
    const unsigned limit_ms = m->cfg->limit_ms + doctor_late_ms(m->cfg->limit_ms) + PAIR_MS_MAX;
    if (m->cfg->net && pair_serve(&m->server, limit_ms, &err) < 0)
        look_put(o, "net_error", look_text(err.text));
}

/* Connect to the next node and to the first, and serve the nodes that connect to this one. */
static void look_at_others(const struct doctor_cfg *cfg, json_t *o)
{
    const int n = cfg->alloc->nnodes;
    const int me = cfg->alloc->index;
    const struct timeval limit = dd_timeval(cfg->limit_ms * DD_NS_PER_MS);
    struct meet m = {
        .cfg = cfg, .fd = -1, .expected = me == 0 ? n - 1 : 1, .came_list = json_array()};
    json_t *probes = json_array();
    LIST_INIT(&m.callers);
    look_id_of(m.id, cfg->id, me);
    look_start_server(&m, o); /* before net_loop_new(): its process would inherit the loop */
    m.base = net_loop_new();
    m.came = calloc((size_t)n, sizeof(*m.came));
    m.limit = m.base != NULL ? evtimer_new(m.base, look_on_limit, &m) : NULL;
    bool ready = m.limit != NULL && m.came != NULL && event_add(m.limit, &limit) == 0;
    if (ready && look_find_key(&m, o) && look_listen_here(&m, o) == 0) {
        look_begin_probe(&m, (me + 1) % n);
        if (me > 0 && (me + 1) % n != 0)
            look_begin_probe(&m, 0);
        event_base_dispatch(m.base);
        look_meet_close(&m);
        if (cfg->net) {
            look_measure(&m, o);
            look_await_previous(&m);
        }
    }
    for (int i = 0; i < m.nprobes; i++) {
        look_try_iface(&m.probes[i]);
        (void)json_array_append_new(probes,
                                    m.probes[i].answer != NULL ? m.probes[i].answer : json_null());
    }
    look_put(o, "probes", probes);
    look_put(o, "came", m.came_list);
    look_meet_done(&m);
}

json_t *doctor_look(const struct doctor_cfg *cfg)
{
    json_t *o = look_here(cfg);
    if (o != NULL && cfg->alloc->nnodes > 1 && cfg->alloc->index >= 0)
        look_at_others(cfg, o);
    return o;
}
