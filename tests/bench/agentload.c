/* Load for ddrund's rendezvous: many agents of one job in one process, by the code that agents use
 * for their links (src/net/link.h) and messages (src/rdzv/msg.h).
 *
 *     agentload --port=P --key-file=F --nnodes=N [--first=1] [--agents=100] [--slots=8]
 *               [--source=ADDRESS] [--window=N]
 *
 * Agent i is node `first + i` of the job explicit.P, whose leader listens at 127.0.0.1:P. With
 * --source node n has the IPv4 address ADDRESS + n, which the kernel must route to itself. Each
 * joins at once (with --window only so many at a time: one process cannot answer for thousands as
 * promptly as thousands of nodes do), begins again if it loses its link, reports its workers as
 * started when it has its plan, and as done when a line arrives on stdin. The program prints the
 * time of each step, in seconds of the monotonic clock, when all its agents have reached it, and
 * the number of lost links, and ends with 0 once the daemon has ended the job with 0. */
#include "base/io.h"
#include "base/num.h"
#include "net/link.h"
#include "net/tls_inner.h"
#include "rdzv/msg.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HEARTBEAT_MS = 5000 }; /* default of --heartbeat */

struct options {
    uint16_t port;
    int nnodes, first, agents, slots, window;
    const char *key_file;
    uint32_t source; /* in host byte order; 0: let the kernel choose */
};

enum step { LINKED, PLANNED, COMMITTED, FINISHED, STEPS };
static const char *const step_names[] = {"linked", "planned", "committed", "finished"};

struct load {
    struct options o;
    struct event_base *base;
    struct net_tls *tls;
    struct net_key_input key_in;
    struct dd_log log;
    char job_id[64];
    int reached[STEPS];
    int started; /* agents */
    int again;   /* links lost before the plan */
    int code;
    struct agent *agents;
};

struct agent {
    struct load *load;
    int index;
    char name[16];
    char addr[INET_ADDRSTRLEN];
    struct link_find *find;
    struct link *link;
    bool reached[STEPS];
};

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "agentload: %s: %s\n", what, why);
    exit(1);
}

static void reach(struct agent *a, enum step step)
{
    struct load *l = a->load;
    if (a->reached[step])
        return;
    a->reached[step] = true;
    if (++l->reached[step] < l->o.agents)
        return;
    printf("%s %.6f %d\n", step_names[step], (double)dd_now_ns() / 1e9, l->again);
    (void)fflush(stdout);
    if (step == FINISHED)
        (void)event_base_loopbreak(l->base);
}

/* ---- messages ---- */

static void send_message(const struct agent *a, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    if (msg_encode(&text, m) < 0 || link_send(a->link, FRAME_CONTROL, text, strlen(text)) < 0)
        die(a->name, "cannot send a message");
}

static void send_join(const struct agent *a)
{
    const struct options *o = &a->load->o;
    DD_AUTO(strv) struct dd_strv addrs = {0};
    (void)dd_strv_push(&addrs, a->addr);
    send_message(a, MSG(JOIN, .index = a->index, .nnodes = o->nnodes, .min_nodes = o->nnodes,
                        .slots = o->slots, .pid = a->index, .name = a->name, .addr = "127.0.0.1",
                        .addrs = &addrs, .sent_ns = (int64_t)dd_now_ns()));
}

static void on_frame(void *arg, struct link *link, const struct frame *f)
{
    struct agent *a = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    (void)link;
    if (f->type != FRAME_CONTROL)
        return;
    if (msg_decode(&m, f->data, f->len, &err) < 0)
        die(a->name, err.text);
    if (m.type == MSG_PLAN) {
        if (m.plan.node_rank != a->index)
            die(a->name, "it has the plan of another node");
        send_message(a, MSG(STARTED, .round = m.plan.round));
        reach(a, PLANNED);
    } else if (m.type == MSG_COMMIT) {
        reach(a, COMMITTED);
    } else if (m.type == MSG_FINISH) {
        a->load->code |= m.finish.code;
        link_bye(DD_TAKE(a->link));
        reach(a, FINISHED);
    } else if (m.type == MSG_REFUSE) {
        die(a->name, m.refuse.text);
    }
}

static void start_agent(struct agent *a);
static void start_next(struct load *l);

static void on_close(void *arg, struct link *link, bool clean, const char *why)
{
    struct agent *a = arg;
    (void)clean;
    if (a->reached[PLANNED])
        die(a->name, why);
    a->load->again++;
    link_free(link);
    a->link = NULL;
    start_agent(a);
}

static void on_found(void *arg, struct link *link)
{
    struct agent *a = arg;
    link_find_free(DD_TAKE(a->find));
    a->link = link;
    link_set_cb(link, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = a});
    (void)link_set_heartbeat(link, HEARTBEAT_MS);
    send_join(a);
    reach(a, LINKED);
    start_next(a->load);
}

static void on_line(evutil_socket_t fd, short what, void *arg)
{
    const struct load *l = arg;
    char line[16];
    (void)what;
    if (read((int)fd, line, sizeof(line)) <= 0)
        exit(1); /* the caller has given up */
    for (int i = 0; i < l->o.agents; i++)
        send_message(&l->agents[i], MSG(DONE, .round = 0));
}

/* ---- start ---- */

static void start_agent(struct agent *a)
{
    struct load *l = a->load;
    static char host[] = "127.0.0.1";
    char *const addrs[] = {host, NULL};
    struct dd_err err = {0};
    const struct link_find_cfg cfg = {.job_id = l->job_id,
                                      .node = a->name,
                                      .host = host,
                                      .addrs = addrs,
                                      .ports = &l->o.port,
                                      .nports = 1,
                                      .bind_addr = l->o.source != 0 ? a->addr : NULL,
                                      .key_in = &l->key_in,
                                      .tls = &l->tls,
                                      .log = &l->log,
                                      .nnodes = (unsigned)l->o.nnodes};
    if (link_find_start(&a->find, l->base, &cfg, on_found, a, &err) < 0)
        die(a->name, err.text);
}

static void start_next(struct load *l)
{
    if (l->started < l->o.agents)
        start_agent(&l->agents[l->started++]);
}

static void start(struct load *l)
{
    l->agents = calloc((size_t)l->o.agents, sizeof(*l->agents));
    l->base = event_base_new();
    if (l->agents == NULL || l->base == NULL)
        die("start", "out of memory");
    (void)snprintf(l->job_id, sizeof(l->job_id), "explicit.%u", l->o.port);
    l->key_in = (struct net_key_input){.key_file = l->o.key_file, .job_id = l->job_id};
    l->log = (struct dd_log){.fd = STDERR_FILENO, .level = DD_LOG_WARN, .who = "agentload"};
    printf("begun %.6f\n", (double)dd_now_ns() / 1e9);
    for (int i = 0; i < l->o.agents; i++) {
        struct agent *a = &l->agents[i];
        *a = (struct agent){.load = l, .index = l->o.first + i};
        (void)snprintf(a->name, sizeof(a->name), "node%d", a->index);
        const struct in_addr addr = {
            htonl(l->o.source != 0 ? l->o.source + (uint32_t)a->index : INADDR_LOOPBACK)};
        (void)inet_ntop(AF_INET, &addr, a->addr, sizeof(a->addr));
    }
    for (int i = 0; i < l->o.window; i++)
        start_next(l);
}

static bool take_int(const char *arg, const char *name, int min, int max, int *ret)
{
    const size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0)
        return false;
    if (dd_num_int(arg + n, min, max, ret) < 0)
        die(arg, "not a number in range");
    return true;
}

static bool take_text(const char *arg, const char *name, const char **ret)
{
    const size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0)
        return false;
    *ret = arg + n;
    return true;
}

static void parse(struct options *o, int argc, char **argv)
{
    int port = 0;
    const char *source = NULL;
    struct in_addr first = {0};
    *o = (struct options){.first = 1, .agents = 100, .slots = 8, .window = 65535};
    for (int i = 1; i < argc; i++)
        if (!take_int(argv[i], "--port=", 1, 65535, &port) &&
            !take_int(argv[i], "--nnodes=", 2, 65536, &o->nnodes) &&
            !take_int(argv[i], "--first=", 1, 65535, &o->first) &&
            !take_int(argv[i], "--agents=", 1, 65535, &o->agents) &&
            !take_int(argv[i], "--window=", 1, 65535, &o->window) &&
            !take_int(argv[i], "--slots=", 1, 4096, &o->slots) &&
            !take_text(argv[i], "--key-file=", &o->key_file) &&
            !take_text(argv[i], "--source=", &source))
            die(argv[i], "unknown option");
    if (source != NULL && inet_pton(AF_INET, source, &first) != 1)
        die(source, "not an IPv4 address");
    o->source = ntohl(first.s_addr);
    o->port = (uint16_t)port;
    if (port == 0 || o->key_file == NULL || o->first + o->agents > o->nnodes)
        die("options", "--port, --key-file and --nnodes > first + agents - 1 are needed");
}

int main(int argc, char **argv)
{
    struct load l = {0};
    struct rlimit files;
    parse(&l.o, argc, argv);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    start(&l);
    struct event *input = event_new(l.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_line, &l);
    if (input == NULL || event_add(input, NULL) < 0 || event_base_dispatch(l.base) < 0)
        die("event loop", "failed");
    return l.code != 0;
}
