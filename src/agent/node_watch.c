#include "agent/node_watch.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/round.h"
#include "agent/uplink.h"
#include "alloc/node_marks.h"
#include "base/io.h"
#include "worker/command.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_MS = 20000,
    FIRST_MS = 500,           /* time to the first query, and to each further check for a link */
    NODE_BYTES = 8192,        /* bytes of output for each node, which needs 1 to 3 KiB */
    OUT_MAX = 64 << 20,       /* bytes of the whole output */
    MARKS_BYTES = 400 * 1024, /* fits into a message */
};

struct node_watch {
    struct node_watch_parts parts;
    uint64_t every_ns;
    const struct alloc_marks_row *row;
    struct hostlist *nodes; /* nodes of the job, by the names that the scheduler uses */
    struct command *ask;
    struct event *tick; /* NULL: another node leads, or there is no scheduler to query */
    bool failing;       /* the last command has failed, and the failure was reported */
    bool hosts;         /* query by names without domains */
    bool again;         /* `hosts` was toggled after a failure */
};

static const struct dd_log *watch_log(const struct node_watch *w)
{
    return w->parts.loop->cfg->log;
}

static void wait_ms(struct node_watch *w, uint64_t ms)
{
    const struct timeval tv = dd_timeval(ms * DD_NS_PER_MS);
    evtimer_add(w->tick, &tv);
}

/* Report the first of several failures in a row. */
static void watch_failed(struct node_watch *w, const char *why)
{
    char line[240];
    const char *text = dd_log_escape(line, sizeof(line), why, strcspn(why, "\n"));
    if (!w->failing)
        dd_log(watch_log(w), DD_LOG_WARN,
               "--watch-nodes: cannot ask %s for the state of the nodes (%.200s); trying again "
               "every %.10g s",
               alloc_marks_scheduler(w->row), text, (double)w->every_ns / 1e9);
    else
        dd_log(watch_log(w), DD_LOG_DEBUG, "event=node-watch-failed why=%.200s", text);
    w->failing = true;
}

static void watch_take(struct node_watch *w, const char *out)
{
    DD_AUTO(buf) struct dd_buf marks = DD_BUF_INIT(MARKS_BYTES);
    const int n = alloc_marks_read(w->row, out, &marks);
    const char *text = dd_buf_str(&marks);
    if (n == -ENOMEM || text == NULL) {
        watch_failed(w, "out of memory");
    } else if (n >= 0 && (size_t)n < hostlist_count(w->nodes)) {
        watch_failed(w, "the reply does not describe all nodes");
    } else { /* -EMSGSIZE: the text omits some nodes, but the listed ones are out of service */
        w->failing = false;
        uplink_send(w->parts.uplink, MSG(NODE_MARKS, .text = text));
    }
}

static void watch_on_answer(void *arg, int code, const char *out)
{
    struct node_watch *w = arg;
    const bool linked = uplink_is_up(w->parts.uplink);
    char how[60];
    (void)snprintf(how, sizeof(how), "exit code %d", code);
    /* PBS may name a node node1, but write node1.cluster into the node file */
    const bool again = code > 0 && !w->again && alloc_marks_other_names(w->row, w->nodes);
    if (again)
        w->hosts = !w->hosts;
    else if (code == COMMAND_TOO_LATE)
        watch_failed(w, "no answer within 20 s");
    else if (code != 0)
        watch_failed(w, out[0] != '\0' ? out : how);
    else if (linked)
        watch_take(w, out);
    w->again = again;
    command_free(w->ask);
    w->ask = NULL;
    wait_ms(w, again ? 0 : w->every_ns / DD_NS_PER_MS);
}

static void watch_ask(struct node_watch *w)
{
    const size_t n = hostlist_count(w->nodes);
    struct alloc_marks_words command = {0};
    struct dd_err err = {0};
    struct command_spec spec = {.env = w->parts.loop->cfg->env,
                                .limit_ms = ASK_MS,
                                .most_out = n < OUT_MAX / NODE_BYTES - 8 ? (n + 8) * NODE_BYTES
                                                                         : OUT_MAX};
    int rc = alloc_marks_command(w->row, w->nodes, w->hosts, &command);
    spec.argv = (const char *const *)command.words.v;
    spec.directory = command.directory;
    rc = rc < 0 ? dd_err_set(&err, rc, "%s",
                             rc == -E2BIG ? "too many nodes for a command line" : "out of memory")
                : command_start(&w->ask, w->parts.loop->base, &spec, watch_on_answer, w, &err);
    if (rc < 0) {
        watch_failed(w, err.text);
        wait_ms(w, w->every_ns / DD_NS_PER_MS);
    } else {
        round_protect(w->parts.round, command_pid(w->ask));
    }
    dd_strv_done(&command.words);
}

static void watch_on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct node_watch *w = arg;
    (void)fd;
    (void)what;
    if (uplink_is_up(w->parts.uplink))
        watch_ask(w);
    else
        wait_ms(w, FIRST_MS);
}

/* Find the names that the scheduler uses for the nodes of the job; < 0: unknown. */
static int watch_find_nodes(struct node_watch *w)
{
    const struct agent_cfg *cfg = w->parts.loop->cfg;
    const struct alloc *a = cfg->alloc;
    w->row = alloc_marks_find(a->source, cfg->env);
    if (w->row == NULL)
        return -ENOENT;
    const char *variable = alloc_marks_variable(w->row);
    const char *list = variable != NULL ? dd_env_get_nonempty(cfg->env, variable) : NULL;
    if (hostlist_count(a->nodes) >= (size_t)a->nnodes)
        return hostlist_uniq(&w->nodes, a->nodes);
    return list != NULL ? hostlist_parse(&w->nodes, list, NULL) : -ENOENT;
}

int node_watch_new(struct node_watch **ret, const struct node_watch_parts *parts, uint64_t every_ns)
{
    struct node_watch *w = *ret = calloc(1, sizeof(*w));
    if (w == NULL)
        return -ENOMEM;
    *w = (struct node_watch){.parts = *parts, .every_ns = every_ns};
    if (every_ns > 0 && every_ns < DD_NS_PER_S) /* limit the load on the scheduler */
        w->every_ns = DD_NS_PER_S;
    return 0;
}

int node_watch_start(struct node_watch *w, struct dd_err *err)
{
    if (w->every_ns == 0 || w->tick != NULL)
        return 0;
    const int rc = w->nodes == NULL ? watch_find_nodes(w) : 0;
    if (rc == -ENOMEM)
        return dd_err_set(err, rc, "out of memory");
    if (rc < 0) { /* a settings file may set the option for all jobs */
        dd_log(watch_log(w),
               strcmp(w->parts.loop->cfg->alloc->source, "local") == 0 ? DD_LOG_DEBUG : DD_LOG_WARN,
               "--watch-nodes has no effect: %s",
               w->row == NULL ? "ddrun does not run in a job of Slurm or PBS"
                              : "the names of the nodes are unknown");
        w->every_ns = 0;
        return 0;
    }
    w->tick = evtimer_new(w->parts.loop->base, watch_on_tick, w);
    if (w->tick == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    wait_ms(w, FIRST_MS);
    return 0;
}

void node_watch_round(const struct node_watch *w)
{
    if (w->ask != NULL)
        round_protect(w->parts.round, command_pid(w->ask));
}

void node_watch_stop(struct node_watch *w)
{
    command_free(w->ask);
    w->ask = NULL;
    if (w->tick != NULL)
        event_free(w->tick);
    w->tick = NULL;
}

void node_watch_free(struct node_watch *w)
{
    if (w == NULL)
        return;
    node_watch_stop(w);
    hostlist_free(w->nodes);
    free(w);
}
