#include "agent/health_check.h"

#include "agent/agent.h"
#include "agent/round.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "node/health.h"
#include "report/report.h"
#include "worker/command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LINES_MAX_BYTES = 10000, UNFIT_MAX = 400, CHECK_MAX = 256 };

struct health {
    const struct health_cfg *cfg;
    const struct round *round;
    struct node_health *node;
    struct command *command; /* the running check; NULL: none */
    struct command *watch;   /* process that waits for XIDs; NULL: not started, or has ended */
    bool watched;
    bool again;     /* this agent has run a check before */
    char *warnings; /* warnings of the last check; NULL: none */
    void (*then)(void *arg);
    void *arg;
    char unfit[UNFIT_MAX];
    char check[CHECK_MAX]; /* name of the check that failed */
};

int health_new(struct health **ret, const struct health_cfg *c, const struct round *r,
               struct dd_err *err)
{
    const struct node_health_cfg node = {.list = c->list,
                                         .gpus = c->gpus,
                                         .visible = c->visible,
                                         .nvml = c->nvml,
                                         .usage_ms = c->usage_ms,
                                         .tmpdir = c->tmpdir != NULL ? c->tmpdir : "/tmp",
                                         .root = ""};
    struct health *h = *ret = calloc(1, sizeof(*h));
    if (h == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    h->cfg = c;
    h->round = r;
    return node_health_new(&h->node, &node, err);
}

/* Return the last line of the output, without control characters; "": none. Lent until *clean
 * changes. */
static const char *last_line(struct dd_buf *clean, const char *out)
{
    (void)report_tail(out, clean);
    char *text = dd_buf_str(clean) != NULL ? (char *)clean->data : NULL;
    size_t n = text != NULL ? strlen(text) : 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    const char *lf = n > 0 ? strrchr(text, '\n') : NULL;
    return n == 0 ? "" : lf != NULL ? lf + 1 : text;
}

/* Store the reason why `what` failed: its last line of output, else the exit code. */
static void take_reason(struct health *h, const char *what, int code, const char *out)
{
    DD_AUTO(buf) struct dd_buf clean = DD_BUF_INIT(LINES_MAX_BYTES);
    const char *last = last_line(&clean, out);
    if (code == COMMAND_TOO_LATE)
        (void)snprintf(h->unfit, UNFIT_MAX, "%.250s timed out after %.10g s", what,
                       (double)h->cfg->limit_ns / 1e9);
    else if (last[0] != '\0')
        (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", last);
    else
        (void)snprintf(h->unfit, UNFIT_MAX, "%.250s exited with code %d", what, code);
}

static void health_start(struct health *h, struct command_spec *spec, command_done_f *done)
{
    const struct round *r = h->round;
    struct dd_err err = {0};
    spec->env = r->cfg->env;
    spec->limit_ms = (unsigned)(h->cfg->limit_ns / DD_NS_PER_MS);
    if (command_start(&h->command, r->base, spec, done, h, &err) == 0) {
        round_protect(r, command_pid(h->command));
        return;
    }
    (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", err.text);
    h->then(h->arg);
}

static void on_command_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    char what[UNFIT_MAX];
    (void)snprintf(what, sizeof(what), "--health-check='%.200s'", h->cfg->command);
    if (code != 0)
        take_reason(h, what, code, out);
    command_free(DD_TAKE(h->command));
    h->then(h->arg);
}

/* Run the user's command, if there is one. */
static void check_more(struct health *h)
{
    const char *argv[] = {"sh", "-c", h->cfg->command, NULL};
    struct command_spec spec = {.argv = argv};
    if (argv[2] == NULL || h->unfit[0] != '\0') {
        h->then(h->arg);
        return;
    }
    (void)snprintf(h->check, CHECK_MAX, "--health-check");
    health_start(h, &spec, on_command_end);
}

/* ---- the built-in checks ---- */

/* True for a warning about events since the last check, which is logged even if the previous
 * warning had the same text. */
static bool is_increment(const char *warning)
{
    return strstr(warning, " since the last check") != NULL;
}

/* Log the warnings that the previous check did not have, and store all of them. */
static void take_warnings(struct health *h)
{
    DD_AUTO(strv) struct dd_strv lines = {0};
    DD_AUTO(free) char *last = DD_TAKE(h->warnings);
    h->warnings = strdup(node_health_warnings(h->node));
    if (h->warnings == NULL || dd_strv_split(&lines, h->warnings, "\n") < 0)
        return;
    for (size_t i = 0; i < lines.n; i++)
        if (last == NULL || is_increment(lines.v[i]) || strstr(last, lines.v[i]) == NULL)
            dd_log(h->round->cfg->log, DD_LOG_WARN, "%s", lines.v[i]);
}

static void on_watch_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    (void)out;
    command_free(DD_TAKE(h->watch));
    dd_log(h->round->cfg->log, DD_LOG_DEBUG, "event=xids-not-readable code=%d", code);
}

static int run_watch(void *arg)
{
    const struct health *h = arg;
    (void)prctl(PR_SET_NAME, "ddrun-health");
    node_health_watch(h->node);
    return 0;
}

/* Start a process that waits for XIDs and reads the usage of the GPUs until this process exits. */
static void watch(struct health *h)
{
    const struct command_spec spec = {
        .run = run_watch, .run_arg = h, .most_out = 1, .limit_ms = UINT_MAX};
    const bool possible = (h->cfg->list->checks & NODE_HEALTH_GPU) && h->cfg->gpus > 0 &&
                          node_health_note(h->node)[0] == '\0';
    if (h->watched || !possible || h->unfit[0] != '\0')
        return;
    h->watched = true;
    if (command_start(&h->watch, h->round->base, &spec, on_watch_end, h, NULL) == 0)
        round_protect(h->round, command_pid(h->watch));
}

static void on_built_in_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    const char *doing = node_health_doing(h->node);
    (void)snprintf(h->check, CHECK_MAX, "%s", node_health_name(h->node));
    if (code == COMMAND_TOO_LATE && doing[0] != '\0')
        (void)snprintf(h->unfit, UNFIT_MAX, "%.300s did not respond within %.10g s (--health)",
                       doing, (double)h->cfg->limit_ns / 1e9);
    else if (code != 0)
        take_reason(h, "a built-in check (--health)", code, out);
    take_warnings(h);
    if (node_health_note(h->node)[0] != '\0')
        dd_log(h->round->cfg->log, DD_LOG_DEBUG, "%s", node_health_note(h->node));
    command_free(DD_TAKE(h->command));
    watch(h);
    check_more(h);
}

/* Run the built-in checks in a child: a hung disk must not block the agent. */
static int run_built_in(void *arg)
{
    const struct health *h = arg;
    struct dd_err err = {0};
    (void)prctl(PR_SET_NAME, "ddrun-health");
    int rc = node_health_check(h->node, &err);
    if (rc != 0)
        (void)dd_write_full(STDOUT_FILENO, err.text, strlen(err.text));
    return rc;
}

void health_check(struct health *h, void (*then)(void *arg), void *arg)
{
    struct command_spec spec = {.run = run_built_in, .run_arg = h};
    h->then = then;
    h->arg = arg;
    h->unfit[0] = h->check[0] = '\0';
    command_free(DD_TAKE(h->command));
    const bool none = h->cfg->list->checks == 0 && h->cfg->list->n == 0;
    /* After a failure, the child also shows whether this node can still start processes; at the
     * start, the workers themselves do. */
    const bool idle = !h->again && node_health_is_idle(h->node);
    h->again = true;
    if (none || idle)
        check_more(h);
    else
        health_start(h, &spec, on_built_in_end);
}

const char *health_unfit(const struct health *h)
{
    return h->unfit;
}

const char *health_failed_check(const struct health *h)
{
    return h->unfit[0] != '\0' ? h->check : "";
}

const char *health_warnings(const struct health *h)
{
    return h->warnings != NULL ? h->warnings : "";
}

int health_gpus(const struct health *h, struct gpu_usage *ret, uint64_t *ret_readings)
{
    return node_health_gpus(h->node, ret, ret_readings);
}

void health_free(struct health *h)
{
    if (h == NULL)
        return;
    command_free(h->watch);
    free(h->warnings);
    command_free(h->command);
    node_health_free(h->node);
    free(h);
}
