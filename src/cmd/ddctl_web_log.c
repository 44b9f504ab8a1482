#include "cmd/ddctl_web_log.h"

#include "base/auto.h"
#include "cmd/ddctl_workers.h"
#include "worker/command.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASKED_MAX = 8, /* several pages may be open; each has one request at a time */
    TEXT_MAX = 4 << 20,
    LIMIT_MS = 20000, /* 20 s in web_log_json() */
};

struct web_log {
    struct web_logs *all;
    struct command *command; /* NULL: free */
    int rank;
    web_log_done_f *done;
    void *arg;
};

struct web_logs {
    struct event_base *base;
    const char *job;
    struct web_log v[ASKED_MAX];
};

/* Print the last lines of the rank, in a child of the loop. */
static int web_log_print(void *arg)
{
    const struct web_log *g = arg;
    return workers_print_lines(g->all->job, g->rank);
}

static char *web_log_json(const struct web_log *g, int code, const char *out)
{
    const char *problem = code == 0 ? "" : code == COMMAND_TOO_LATE ? "no answer within 20 s" : out;
    json_t *o = json_pack("{s:i,s:i,s:s,s:s%}", "version", 1, "rank", g->rank, "text",
                          code == 0 ? out : "", "problem", problem, strcspn(problem, "\n"));
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void web_log_on_end(void *arg, int code, const char *out)
{
    struct web_log *g = arg;
    DD_AUTO(free) char *text = web_log_json(g, code, out);
    command_free(DD_TAKE(g->command));
    g->done(g->arg, text);
}

int web_logs_ask(struct web_logs *l, int rank, web_log_done_f *done, void *arg, struct dd_err *err)
{
    struct web_log *g = l->v;
    while (g < l->v + ASKED_MAX && g->command != NULL)
        g++;
    if (g == l->v + ASKED_MAX)
        return dd_err_set(
            err, -EBUSY, "too many requests for the output of ranks at once (limit %d)", ASKED_MAX);
    *g = (struct web_log){.all = l, .rank = rank, .done = done, .arg = arg};
    const struct command_spec spec = {
        .run = web_log_print, .run_arg = g, .most_out = TEXT_MAX, .limit_ms = LIMIT_MS};
    return command_start(&g->command, l->base, &spec, web_log_on_end, g, err);
}

int web_logs_new(struct web_logs **ret, struct event_base *base, const char *job)
{
    struct web_logs *l = *ret = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    l->base = base;
    l->job = job;
    return 0;
}

void web_logs_free(struct web_logs *l)
{
    for (size_t i = 0; l != NULL && i < ASKED_MAX; i++)
        command_free(l->v[i].command);
    free(l);
}
