#include "agent/warm_interpreter.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/round.h"
#include "agent/relayed_store.h"
#include "agent/spec.h"
#include "agent/staging.h"
#include "base/auto.h"
#include "base/io.h"
#include "node/cpu.h"
#include "node/numa.h"
#include "worker/child_watch.h"
#include "worker/program.h"
#include "worker/warm_process.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    STARTS_MAX = 12,   /* maximum number of starts; each after the first leaves a module out, or
                          replaces a failed process */
    SLOW_S = 60,       /* interval of reports of a long import */
    FORK_MIN_MS = 500, /* bounds of the time limit of a fork, for which the agent blocks */
    FORK_MAX_MS = 30000,
};

struct warm_interpreter {
    struct agent_loop *loop;
    const struct round *round;
    struct warm_process process;
    struct child_watch end;
    struct event *on_message, *on_slow;
    struct dd_strv argv, env, left_out;
    struct warm_fork fork;
    struct node_cpus cpus;
    cpu_set_t *share;
    char module[200];  /* module that is being imported; "": none */
    uint64_t begun_ns; /* start of the imports */
    int starts;
    bool ready;    /* the interpreter can fork workers */
    bool left_one; /* the interpreter exits because of a module that the next one leaves out */
    bool over;     /* no interpreter is started again */
    bool staged;   /* the interpreter runs in the copies of --stage */
    void (*then)(void *arg);
    void *arg;
};

static const struct dd_log *log_of(const struct warm_interpreter *w)
{
    return w->loop->cfg->log;
}

static void call_then(struct warm_interpreter *w)
{
    void (*then)(void *arg) = w->then;
    w->then = NULL;
    if (then != NULL)
        then(w->arg);
}

/* ---- arguments, environment and CPUs of the interpreter ---- */

/* Make arguments and environment of one of two example workers (node 0 or 1), which differ in all
 * values that depend on the rank or the round. */
static int example_worker(const struct warm_interpreter *w, int node, struct dd_strv *argv,
                          struct dd_strv *env, struct dd_err *err)
{
    const struct agent_cfg *cfg = w->loop->cfg;
    const int n = cfg->slots;
    int sizes[3] = {n, n, n};
    struct plan p = {.round = node,
                     .sizes = sizes,
                     .nnodes = 2 + node,
                     .node_rank = node,
                     .first_rank = node * n,
                     .local_size = n,
                     .world_size = (2 + node) * n,
                     .restart_count = node,
                     .max_restarts = cfg->rdzv.max_restarts,
                     .master_port = (uint16_t)(1 + node),
                     .master_addr = node == 0 ? (char[]){"127.0.0.1"} : (char[]){"127.0.0.2"},
                     .coordinator = node == 0 ? (char[]){"127.0.0.1:1"} : (char[]){"127.0.0.2:1"},
                     .token = (char[]){""},
                     .nodes = node == 0 ? (char[]){"a"} : (char[]){"b"}};
    const struct spec_input in = {.cfg = cfg,
                                  .plan = &p,
                                  .local_rank = n > 1 ? node : 0,
                                  .iface = node == 0 ? "a" : "b",
                                  .error_file = node == 0 ? "a" : "b",
                                  .horovod_port = node == 0 ? "1" : "2",
                                  .store_addr = cfg->relay_store ? RELAYED_STORE_ADDR : NULL,
                                  .store_port = !cfg->relay_store ? NULL
                                                : node == 0       ? "1"
                                                                  : "2"};
    int rc = 0;
    for (int i = 0; i < p.world_size && rc == 0; i++)
        rc = dd_strv_push(&p.endpoints, p.coordinator);
    rc = rc < 0 ? dd_err_set(err, rc, "out of memory") : spec_make(argv, env, &in, err);
    dd_strv_done(&p.endpoints);
    return rc;
}

/* Make the environment that all workers have in common, without what depends on the round. */
static int make_environment(struct warm_interpreter *w, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv none = {0};
    DD_AUTO(strv) struct dd_strv a = {0};
    DD_AUTO(strv) struct dd_strv b = {0};
    int rc = example_worker(w, 0, &w->argv, &a, err);
    if (rc == 0)
        rc = example_worker(w, 1, &none, &b, err);
    if (rc < 0)
        return rc;
    rc = warm_env_common(&w->env, a.v, b.v);
    /* modules may read the variables at import, before the caches are complete */
    rc = rc == 0 ? compile_cache_put_variables(&w->loop->cfg->compile_cache, &w->env) : rc;
    return rc < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

/* Bind the interpreter as the first worker will be: libraries count CPUs when they are loaded. */
static int make_share(struct warm_interpreter *w, struct dd_err *err)
{
    const struct round_specs_binding *bind = &w->loop->cfg->bind;
    const int n = w->loop->cfg->slots;
    struct node_memory memory;
    int rc = node_cpus_get(&w->cpus, err);
    if (rc < 0)
        return rc;
    w->share = calloc(1, w->cpus.size);
    if (w->share == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct node_numa_query q = {
        .cpus = &w->cpus, .root = "", .env = w->loop->cfg->env, .mode = bind->numa, .nworkers = n};
    if (bind->numa != NODE_NUMA_NONE)
        rc = node_numa_place(&q, 0, w->share, &memory, err);
    else
        rc = bind->cpus ? node_cpus_share(&w->cpus, "", 0, n, w->share) : 1;
    if (rc != 0)
        free(DD_TAKE(w->share));
    return rc < 0 ? rc : 0;
}

/* ---- the end of a process ---- */

static void forget_process(struct warm_interpreter *w)
{
    child_watch_end(&w->end);
    if (w->on_message != NULL)
        event_free(DD_TAKE(w->on_message));
    if (w->on_slow != NULL)
        event_free(DD_TAKE(w->on_slow));
    warm_process_end(&w->process);
    w->ready = false;
}

static void give_up(struct warm_interpreter *w, const char *why)
{
    forget_process(w);
    w->over = true;
    dd_log(log_of(w), DD_LOG_WARN, "--warm: workers are executed instead of forked: %s", why);
    call_then(w);
}

static void leave_out(struct warm_interpreter *w, const char *module, const char *why)
{
    char shown[WARM_TEXT_MAX];
    (void)dd_log_escape(shown, sizeof(shown), why, strcspn(why, "\n"));
    dd_log(log_of(w), DD_LOG_WARN, "--warm does not import module '%s' in advance: it %s", module,
           shown);
    (void)dd_strv_push(&w->left_out, module);
}

/* ---- messages ---- */

static void take_unfit(struct warm_interpreter *w, char *text)
{
    char *why = strchr(text, '\n');
    if (why != NULL)
        *why++ = '\0';
    leave_out(w, text, why != NULL ? why : "cannot be shared");
    w->module[0] = '\0';
    w->left_one = true;
}

static void take_ready(struct warm_interpreter *w, unsigned modules)
{
    w->ready = true;
    w->module[0] = '\0';
    if (w->on_slow != NULL)
        event_free(DD_TAKE(w->on_slow));
    dd_log(log_of(w), DD_LOG_INFO, "--warm: imported %u module%s in %.2f s", modules,
           modules == 1 ? "" : "s", (double)(dd_now_ns() - w->begun_ns) / 1e9);
    call_then(w);
}

static void take_message(struct warm_interpreter *w, struct warm_msg *m)
{
    char shown[WARM_TEXT_MAX];
    char *lf = strchr(m->text, '\n');
    if (lf != NULL && m->type != WARM_UNFIT)
        *lf = '\0';
    (void)dd_log_escape(shown, sizeof(shown), m->text, strlen(m->text));
    switch (m->type) {
    case WARM_IMPORTING:
        (void)snprintf(w->module, sizeof(w->module), "%.199s", shown);
        break;
    case WARM_FAILED:
        dd_log(log_of(w), DD_LOG_WARN, "--warm: cannot import %.400s", shown);
        break;
    case WARM_UNFIT:
        take_unfit(w, m->text);
        break;
    case WARM_READY:
        take_ready(w, m->a);
        break;
    case WARM_WORKER: /* late answers to requests that were given up */
    case WARM_BATCH:
    case WARM_PROBED:
        break;
    }
}

static void read_messages(struct warm_interpreter *w)
{
    struct warm_msg m;
    int rc = 0;
    while (w->on_message != NULL && (rc = warm_process_receive(&w->process, &m)) > 0)
        take_message(w, &m);
    if (rc == -EPROTO)
        give_up(w, "the interpreter has sent a malformed message");
    else if (rc < 0 && w->on_message != NULL)
        event_del(w->on_message); /* on_end() handles the exit */
}

static void on_message(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    read_messages(arg);
}

/* ---- the exit of the interpreter ---- */

static void how_it_ended(char out[64], int status)
{
    if (WIFSIGNALED(status))
        (void)snprintf(out, 64, "ended by signal %d", WTERMSIG(status));
    else
        (void)snprintf(out, 64, "exited with code %d", WEXITSTATUS(status));
}

/* The interpreter has exited. If this was while it imported a module, leave that module out. A
 * signal may have been sent to all processes of the job. */
static void ended(struct warm_interpreter *w, int status)
{
    char how[64], text[160];
    how_it_ended(how, status);
    w->process.pid = 0;
    (void)snprintf(text, sizeof(text), "the interpreter %s%s", WIFSIGNALED(status) ? "was " : "",
                   how);
    if (w->module[0] != '\0') {
        (void)snprintf(text, sizeof(text), "ends the interpreter (%s)", how);
        leave_out(w, w->module, text);
    } else if (!w->ready && !w->left_one && !WIFSIGNALED(status)) {
        give_up(w, text);
        return;
    } else if (!w->left_one) {
        dd_log(log_of(w), DD_LOG_INFO, "--warm: %s; starting another one", text);
    }
    forget_process(w);
    warm_interpreter_start(w, w->round);
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
    struct warm_interpreter *w = arg;
    int status = 0;
    (void)fd;
    read_messages(w); /* the interpreter may have sent the reason */
    (void)what;
    if (w->process.pid > 0 && waitpid(w->process.pid, &status, WNOHANG) == w->process.pid)
        ended(w, status);
}

static void on_slow(evutil_socket_t fd, short what, void *arg)
{
    const struct warm_interpreter *w = arg;
    (void)fd;
    (void)what;
    dd_log(log_of(w), DD_LOG_NOTICE, "--warm: still importing module '%s' after %.0f s",
           w->module[0] != '\0' ? w->module : "site", (double)(dd_now_ns() - w->begun_ns) / 1e9);
}

/* ---- start ---- */

static int watch(struct warm_interpreter *w)
{
    const struct timeval slow = {.tv_sec = SLOW_S};
    w->on_message = event_new(w->loop->base, w->process.fd, EV_READ | EV_PERSIST, on_message, w);
    w->on_slow = event_new(w->loop->base, -1, EV_PERSIST, on_slow, w);
    return w->on_message == NULL || w->on_slow == NULL || event_add(w->on_message, NULL) < 0 ||
                   event_add(w->on_slow, &slow) < 0 ||
                   child_watch_begin(&w->end, w->loop->base, w->process.pid, on_end, w) < 0
               ? -ENOMEM
               : 0;
}

static int start_process(struct warm_interpreter *w, struct dd_err *err)
{
    const struct warm_interpreter_cfg *c = &w->loop->cfg->warm;
    const struct warm_config config = {.mode = WARM_SERVE,
                                       .modules = c->modules,
                                       .left_out = &w->left_out,
                                       .kind = c->command.kind,
                                       .target = c->command.target,
                                       .agent = getpid()};
    struct worker_spec spec = {.argv = w->argv,
                               .env = w->env,
                               .directory = w->loop->cfg->directory,
                               .cpus = w->share,
                               .cpus_size = w->share != NULL ? w->cpus.size : 0,
                               .rank = -1};
    DD_AUTO(fd) int ticket = w->staged ? staging_ticket(w->round, err) : -1;
    if (w->staged && ticket < 0)
        return ticket;
    spec.via = w->staged ? w->loop->cfg->staging.helper : NULL;
    spec.via_fd = ticket;
    const int rc = warm_process_start(&w->process, &spec, &config, false, err);
    return rc == 0 && watch(w) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : rc;
}

void warm_interpreter_start(struct warm_interpreter *w, const struct round *round)
{
    struct dd_err err = {0};
    char often[60];
    if (w != NULL && round != NULL)
        w->round = round;
    if (w == NULL || w->over || w->process.pid > 0 ||
        (w->staged && (w->round == NULL || !staging_is_settled(w->round))))
        return;
    w->left_one = false;
    w->module[0] = '\0';
    w->begun_ns = dd_now_ns();
    if (++w->starts > STARTS_MAX) {
        (void)snprintf(often, sizeof(often), "the interpreter has been started %d times, the limit",
                       STARTS_MAX);
        give_up(w, often);
        return;
    }
    if (start_process(w, &err) < 0) {
        give_up(w, err.text);
        return;
    }
    w->fork.fd = w->process.fd;
    if (round != NULL)
        round_protect(round, w->process.pid);
}

int warm_interpreter_new(struct warm_interpreter **ret, struct agent_loop *loop, struct dd_err *err)
{
    const struct agent_cfg *cfg = loop->cfg;
    const uint64_t half = cfg->heartbeat_ns / DD_NS_PER_MS / 2;
    const struct dd_strv *staged = cfg->staging.paths;
    if (!cfg->warm.on || cfg->cannot != NULL)
        return 0;
    struct warm_interpreter *w = *ret = calloc(1, sizeof(*w));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *w = (struct warm_interpreter){.loop = loop,
                                   .process = {.fd = -1},
                                   .end = CHILD_WATCH_NONE,
                                   .staged = staged != NULL && staged->n > 0};
    w->fork = (struct warm_fork){.fd = -1,
                                 .argv = &w->argv,
                                 .env = &w->env,
                                 .command = &cfg->warm.command,
                                 .records = cfg->alloc->index <= 0,
                                 .limit_ms = half < FORK_MIN_MS   ? FORK_MIN_MS
                                             : half > FORK_MAX_MS ? FORK_MAX_MS
                                                                  : (unsigned)half};
    int rc = make_environment(w, err);
    return rc == 0 ? make_share(w, err) : rc;
}

bool warm_interpreter_wait(struct warm_interpreter *w, void (*then)(void *arg), void *arg)
{
    if (w == NULL || w->over || w->ready)
        return false;
    w->then = then;
    w->arg = arg;
    return true;
}

bool warm_interpreter_is_used(const struct warm_interpreter *w)
{
    return w != NULL && !w->over;
}

void warm_interpreter_wait_no_more(struct warm_interpreter *w)
{
    if (w != NULL)
        w->then = NULL;
}

const struct warm_fork *warm_interpreter_fork(const struct warm_interpreter *w)
{
    return w != NULL && w->ready ? &w->fork : NULL;
}

void warm_interpreter_failed(struct warm_interpreter *w, const char *why)
{
    dd_log(log_of(w), DD_LOG_WARN,
           "--warm: the interpreter could not fork the workers (%s); executing them", why);
    forget_process(w);
}

void warm_interpreter_free(struct warm_interpreter *w)
{
    if (w == NULL)
        return;
    forget_process(w);
    dd_strv_done(&w->argv);
    dd_strv_done(&w->env);
    dd_strv_done(&w->left_out);
    node_cpus_done(&w->cpus);
    free(w->share);
    free(w);
}
