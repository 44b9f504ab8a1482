#include "agent/health_check.h"

#include "agent/inner.h"
#include "base/auto.h"
#include "base/io.h"
#include "node/health.h"
#include "report/report.h"
#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_MAX_BYTES = 10000, UNFIT_MAX = 400 };

struct health {
    struct agent *agent;
    struct node_health *node;
    struct command *command; /* while it runs */
    void (*then)(struct agent *a);
    char unfit[UNFIT_MAX];
};

int health_new(struct agent *a, struct dd_err *err)
{
    const struct agent_health_cfg *c = &a->cfg->health;
    const struct node_health_cfg node = {.checks = c->checks,
                                         .gpus = c->gpus,
                                         .tmpdir = c->tmpdir != NULL ? c->tmpdir : "/tmp",
                                         .root = ""};
    a->health = calloc(1, sizeof(*a->health));
    if (a->health == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->health->agent = a;
    return node_health_new(&a->health->node, &node, err);
}

/* The last line that it wrote, made fit for a sentence; "" when there is none. Lent until *clean
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

/* `what` is not content. */
static void take_reason(struct health *h, const char *what, int code, const char *out)
{
    DD_AUTO(buf) struct dd_buf clean = DD_BUF_INIT(LINES_MAX_BYTES);
    const char *last = last_line(&clean, out);
    if (code == COMMAND_TOO_LATE)
        (void)snprintf(h->unfit, UNFIT_MAX, "%.250s did not end within %.3g s", what,
                       (double)h->agent->cfg->health.limit_ns / 1e9);
    else if (last[0] != '\0')
        (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", last);
    else
        (void)snprintf(h->unfit, UNFIT_MAX, "%.250s exited with code %d", what, code);
}

static void start(struct health *h, struct command_spec *spec, command_done_f *done)
{
    struct agent *a = h->agent;
    struct dd_err err = {0};
    spec->env = a->cfg->env;
    spec->limit_ms = (unsigned)(a->cfg->health.limit_ns / DD_NS_PER_MS);
    if (command_start(&h->command, a->base, spec, done, h, &err) == 0) {
        agent_protect(a, command_pid(h->command));
        return;
    }
    (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", err.text);
    h->then(a);
}

static void on_command_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    char what[UNFIT_MAX];
    (void)snprintf(what, sizeof(what), "--health-check=%.200s", h->agent->cfg->health.command);
    if (code != 0)
        take_reason(h, what, code, out);
    command_free(DD_TAKE(h->command));
    h->then(h->agent);
}

/* The user's own command, if there is one. */
static void check_more(struct health *h)
{
    const char *argv[] = {"sh", "-c", h->agent->cfg->health.command, NULL};
    struct command_spec spec = {.argv = argv};
    if (argv[2] == NULL || h->unfit[0] != '\0')
        h->then(h->agent);
    else
        start(h, &spec, on_command_end);
}

static void on_built_in_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    if (code != 0)
        take_reason(h, "a built-in check (--health)", code, out);
    command_free(DD_TAKE(h->command));
    check_more(h);
}

/* In a child: a disk that hangs must not keep the agent waiting. */
static int run_built_in(void *arg)
{
    const struct health *h = arg;
    struct dd_err err = {0};
    int rc = node_health_check(h->node, &err);
    if (rc != 0)
        (void)dd_write_full(STDOUT_FILENO, err.text, strlen(err.text));
    return rc;
}

void health_check(struct agent *a, void (*then)(struct agent *a))
{
    struct health *h = a->health;
    struct command_spec spec = {.run = run_built_in, .run_arg = h};
    h->then = then;
    h->unfit[0] = '\0';
    command_free(DD_TAKE(h->command));
    if (a->cfg->health.checks == 0)
        check_more(h);
    else
        start(h, &spec, on_built_in_end);
}

const char *health_unfit(const struct agent *a)
{
    return a->health != NULL ? a->health->unfit : "";
}

void health_free(struct agent *a)
{
    if (a->health == NULL)
        return;
    command_free(a->health->command);
    node_health_free(a->health->node);
    free(a->health);
    a->health = NULL;
}
