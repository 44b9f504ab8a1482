#include "agent/nccl_query.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "base/io.h"
#include "net/listen.h"
#include "worker/command.h"
#include "worker/python_process.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ASKING_NODES = 2, /* two, in case no worker of the first node answers */
    HELLO_MS = 300,   /* wait for the first line of a worker: a stopped worker sends none */
    PAUSE_MS = 20,    /* before the next try */
    TRIES = 32,       /* connections: the kernel chooses one of the node's workers for each */
    HELLO_BYTES = 64,
};

/* Src: NCCL 2.24 and later, src/ras/client_support.cc. NCCL waits 1 s for processes whose
 * connections are late. */
static const char ras_question[] = "CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n";
static const char ras_hello[] = "SERVER PROTOCOL ";

struct ras {
    const struct round *round;
    int fd; /* reserves the port */
    uint16_t port;
    uint64_t limit_ns; /* deadline of the pending query, as dd_now_ns() */
    struct command *command;
    char *answer; /* NULL: none */
};

/* ---- the query, in a child ---- */

static int ras_connect(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    DD_AUTO(fd) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
        return -errno;
    return DD_TAKE_FD(fd);
}

static bool ras_wait(int fd, short events, uint64_t until_ns)
{
    const uint64_t now = dd_now_ns();
    struct pollfd p = {.fd = fd, .events = events};
    return now < until_ns && poll(&p, 1, (int)((until_ns - now) / DD_NS_PER_MS) + 1) > 0;
}

/* Copy the data of the worker to stdout until the worker closes the connection. 0: complete. */
static int ras_copy(int fd, uint64_t limit_ns)
{
    char text[4096];
    size_t sum = 0;
    while (ras_wait(fd, POLLIN, limit_ns)) {
        const ssize_t n = read(fd, text, sizeof(text));
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n == 0)
            return 0;
        sum += n > 0 ? (size_t)n : 0;
        if (sum > NCCL_RAS_ANSWER || (n > 0 && dd_write_full(STDOUT_FILENO, text, (size_t)n) < 0))
            return -EMSGSIZE;
    }
    return -ETIMEDOUT;
}

/* Query one worker. -EAGAIN: the worker does not answer; another one may. */
static int ras_ask_one(uint16_t port, uint64_t limit_ns)
{
    const uint64_t hello_ns = dd_now_ns() + HELLO_MS * DD_NS_PER_MS;
    const uint64_t first_ns = hello_ns < limit_ns ? hello_ns : limit_ns;
    char hello[HELLO_BYTES] = "";
    DD_AUTO(fd) int fd = ras_connect(port);
    if (fd < 0)
        return fd;
    if (!ras_wait(fd, POLLOUT, first_ns) || send(fd, ras_question, sizeof(ras_question) - 1,
                                                 MSG_NOSIGNAL) != (ssize_t)sizeof(ras_question) - 1)
        return -EAGAIN;
    while (ras_wait(fd, POLLIN, first_ns)) {
        const ssize_t n = recv(fd, hello, sizeof(hello) - 1, MSG_PEEK);
        if (n <= 0)
            return -EAGAIN;
        hello[n] = '\0';
        if (strncmp(hello, ras_hello, strlen(ras_hello)) == 0)
            return ras_copy(fd, limit_ns);
        if ((size_t)n >= strlen(ras_hello))
            return -EPROTO;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return -EAGAIN;
}

static int ras_ask_in_child(void *arg)
{
    const struct ras *s = arg;
    int rc = -EAGAIN;
    for (int i = 0; i < TRIES && rc == -EAGAIN && dd_now_ns() < s->limit_ns; i++) {
        if (i > 0)
            (void)poll(NULL, 0, PAUSE_MS);
        rc = ras_ask_one(s->port, s->limit_ns);
    }
    return rc == 0 ? 0 : 1;
}

/* ---- answers ---- */

static void ras_on_answer(void *arg, int code, const char *out)
{
    struct ras *s = arg;
    if (code == 0)
        s->answer = strdup(out);
    for (char *p = s->answer; p != NULL && *p != '\0'; p++)
        if (iscntrl((unsigned char)*p) && *p != '\n')
            *p = '?';
    command_free(DD_TAKE(s->command));
}

void nccl_query_start(const struct round *r, uint64_t limit_ns)
{
    struct ras *s = features_state(r, &nccl_query_feature);
    if (s == NULL || s->command != NULL || r->plan.node_rank >= ASKING_NODES)
        return;
    const struct command_spec spec = {.run = ras_ask_in_child,
                                      .run_arg = s,
                                      .most_out = NCCL_RAS_ANSWER + 1,
                                      .limit_ms = (unsigned)(limit_ns / DD_NS_PER_MS) + 1};
    free(DD_TAKE(s->answer));
    s->limit_ns = dd_now_ns() + limit_ns;
    if (command_start(&s->command, r->base, &spec, ras_on_answer, s, NULL) == 0)
        round_protect(r, command_pid(s->command));
}

bool nccl_query_is_ready(const struct round *r)
{
    const struct ras *s = features_state(r, &nccl_query_feature);
    return s == NULL || s->command == NULL;
}

const char *nccl_query_answer(const struct round *r)
{
    const struct ras *s = features_state(r, &nccl_query_feature);
    return s != NULL && s->answer != NULL ? s->answer : "";
}

int nccl_query_take(const struct round *r, struct nccl_ras *ret)
{
    const char *text = nccl_query_answer(r);
    DD_AUTO(nccl_ras) struct nccl_ras found = {0};
    int rc = 0;
    if (features_state(r, &nccl_query_feature) == NULL)
        return 0;
    for (int i = 0; i < r->plan.local_size && rc == 0; i++) {
        const pid_t pid = r->group != NULL ? worker_group_pid(r->group, i) : 0;
        const pid_t python = pid > 0 ? python_process_find(pid) : 0;
        if (pid > 0)
            rc = nccl_ras_add_process(ret, r->plan.first_rank + i, (int)pid);
        if (rc == 0 && python > 0 && python != pid) /* the worker is a wrapper of Python */
            rc = nccl_ras_add_process(ret, r->plan.first_rank + i, (int)python);
    }
    if (rc == 0 && nccl_ras_read(&found, text, strlen(text)) == 0)
        rc = nccl_ras_merge(ret, &found);
    return rc;
}

/* ---- hooks ---- */

static void ras_free(struct ras *s)
{
    command_free(s->command);
    if (s->fd >= 0)
        close(s->fd);
    free(s->answer);
    free(s);
}

/* Without a port the feature takes no part. */
static int ras_prepare(void **state, const struct round *r, struct dd_err *err)
{
    if (!r->cfg->ras.on)
        return 0;
    struct ras *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->round = r;
    s->fd = -1;
    const int rc = net_reserve(NET_RESERVE_PORT, &s->fd, &s->port);
    if (rc == 0) {
        *state = s;
        return 0;
    }
    dd_log(r->cfg->log, DD_LOG_INFO, "cannot reserve a port for NCCL's RAS: %s", strerror(-rc));
    ras_free(s);
    return 0;
}

/* Keep a value that the user has set; ddrun then gets no answer. */
static int ras_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    const struct ras *s = state;
    (void)r;
    (void)local_rank;
    return dd_env_get(spec->env.v, "NCCL_RAS_ADDR") != NULL
               ? 0
               : dd_env_setf(&spec->env, "NCCL_RAS_ADDR", "127.0.0.1:%u", (unsigned)s->port);
}

static void ras_end(void *state, const struct round *r)
{
    (void)r;
    ras_free(state);
}

const struct round_feature nccl_query_feature = {
    .name = "nccl-ras",
    .prepare = ras_prepare,
    .worker_env = ras_env,
    .end = ras_end,
};
