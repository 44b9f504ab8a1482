#include "agent/health.h"

#include "agent/inner.h"
#include "base/auto.h"
#include "base/io.h"
#include "node/health.h"
#include "report/report.h"
#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    const struct node_health_cfg node = {.checks = c->checks, .gpus = c->gpus, .tmpdir = c->tmpdir != NULL ? c->tmpdir : "/tmp", .root = ""};
    a->health = calloc(1, sizeof(*a->health));
    if (a->health == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->health->agent = a;
    return node_health_new(&a->health->node, &node, err);
}

/* The last line that it wrote, made fit for a sentence. */
static void take_reason(struct health *h, int code, const char *out)
{
    const struct agent_health_cfg *c = &h->agent->cfg->health;
    DD_AUTO(buf) struct dd_buf clean = DD_BUF_INIT(LINES_MAX_BYTES);
    (void)report_tail(out, &clean);
    char *text = (char *)(uintptr_t)dd_buf_str(&clean);
    size_t n = text != NULL ? strlen(text) : 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    const char *lf = n > 0 ? strrchr(text, '\n') : NULL;
    const char *last = n == 0 ? "" : lf != NULL ? lf + 1 : text;
    if (code == COMMAND_TOO_LATE)
        (void)snprintf(h->unfit, UNFIT_MAX, "--health-check=%.200s did not end within %.3g s", c->command,
                       (double)c->limit_ns / 1e9);
    else if (last[0] != '\0')
        (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", last);
    else
        (void)snprintf(h->unfit, UNFIT_MAX, "--health-check=%.200s exited with code %d", c->command, code);
}

static void on_command_end(void *arg, int code, const char *out)
{
    struct health *h = arg;
    if (code != 0)
        take_reason(h, code, out);
    command_free(DD_TAKE(h->command));
    h->then(h->agent);
}

void health_check(struct agent *a, void (*then)(struct agent *a))
{
    struct health *h = a->health;
    struct dd_err err = {0};
    const char *argv[] = {"sh", "-c", a->cfg->health.command, NULL};
    const struct command_spec spec = {.argv = (char *const *)(uintptr_t)argv,
                                      .env = a->cfg->env,
                                      .limit_ms = (unsigned)(a->cfg->health.limit_ns / DD_NS_PER_MS)};
    h->then = then;
    h->unfit[0] = '\0';
    command_free(DD_TAKE(h->command));
    if (node_health_check(h->node, &err) != 0 ||
        (argv[2] != NULL && command_start(&h->command, a->base, &spec, on_command_end, h, &err) < 0))
        (void)snprintf(h->unfit, UNFIT_MAX, "%.390s", err.text);
    if (h->command == NULL)
        then(a);
    else
        agent_protect(a, command_pid(h->command));
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
