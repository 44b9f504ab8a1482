#include "launch/node_commands.h"

#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct node_command {
    struct node_commands *all;
    const char *where;
    struct command *command;
};

struct node_commands {
    struct node_commands_cfg cfg;
    struct node_command *v;
    int n, left;
};

static void node_commands_on_exit(void *arg, int code, const char *out)
{
    struct node_command *c = arg;
    struct node_commands *all = c->all;
    all->cfg.on_exit(all->cfg.arg, c->where, code, out);
    command_free(c->command);
    c->command = NULL;
    if (--all->left == 0)
        all->cfg.on_done(all->cfg.arg);
}

static int node_commands_make_argv(const struct node_commands *all, struct dd_strv *argv, int index)
{
    const struct node_commands_cfg *cfg = &all->cfg;
    const bool at_once = cfg->starter->starts_all;
    DD_AUTO(strv) struct dd_strv command = {0};
    if (cfg->command(cfg->arg, &command, at_once ? -1 : index) < 0)
        return -ENOMEM;
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = at_once ? NULL : hostlist_nth(cfg->alloc->nodes, (size_t)index),
                            .nnodes = cfg->alloc->nnodes,
                            .command = (const char *const *)command.v,
                            .env = environ};
    return !at_once && index == cfg->alloc->index ? dd_strv_copy(argv, command.v)
                                                  : starter_command(argv, cfg->starter, &s);
}

static int node_commands_start_one(struct node_commands *all, int index, struct dd_err *err)
{
    const struct node_commands_cfg *cfg = &all->cfg;
    struct node_command *c = &all->v[all->n];
    DD_AUTO(strv) struct dd_strv argv = {0};
    *c = (struct node_command){.all = all,
                               .where = cfg->starter->starts_all
                                            ? cfg->starter->name
                                            : hostlist_nth(cfg->alloc->nodes, (size_t)index)};
    if (node_commands_make_argv(all, &argv, index) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct command_spec spec = {.argv = (const char *const *)argv.v,
                                      .env = environ,
                                      .most_out = cfg->output_max,
                                      .limit_ms = cfg->limit_ms};
    int rc = command_start(&c->command, cfg->base, &spec, node_commands_on_exit, c, err);
    if (rc == 0) {
        all->n++;
        all->left++;
    }
    return rc;
}

int node_commands_start(struct node_commands **ret, const struct node_commands_cfg *cfg,
                        struct dd_err *err)
{
    struct node_commands *all = calloc(1, sizeof(*all));
    const int n = cfg->starter->starts_all ? 1 : cfg->alloc->nnodes;
    if (all == NULL || (all->v = calloc((size_t)n, sizeof(*all->v))) == NULL) {
        free(all);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    all->cfg = *cfg;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = node_commands_start_one(all, i, err);
    if (rc < 0)
        node_commands_free(all);
    else
        *ret = all;
    return rc;
}

void node_commands_free(struct node_commands *n)
{
    if (n == NULL)
        return;
    for (int i = 0; i < n->n; i++)
        command_free(n->v[i].command);
    free(n->v);
    free(n);
}
