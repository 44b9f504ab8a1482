#include "agent/rank_options.h"

#include "worker/ranks.h"
#include "worker/rules.h"

#include <errno.h>
#include <string.h>

/* An option that names a rank that does not exist. The message quotes the first len bytes of value,
 * then more. */
struct missing_rank {
    const char *option, *value, *more;
    int len;
};

/* A value may be secret: quote only the ranks of a rule. */
static bool find_in_rules(struct missing_rank *ret, const char *option, char *const *rules,
                          int world_size)
{
    for (; rules != NULL && *rules != NULL; rules++)
        if (rule_highest_rank(*rules) >= world_size) {
            *ret = (struct missing_rank){option, *rules, ":...", (int)strcspn(*rules, ":")};
            return true;
        }
    return false;
}

static bool find_number(struct missing_rank *ret, const char *option, int rank, char text[16],
                        int world_size)
{
    const int len = snprintf(text, 16, "%d", rank);
    *ret = (struct missing_rank){option, text, "", len};
    return rank >= world_size;
}

static bool find_missing(struct missing_rank *ret, const struct agent_cfg *cfg, int world_size,
                         char text[16])
{
    const struct spec_cfg *w = &cfg->worker;
    /* with --pty, only the rank on the pseudo-terminal reads stdin */
    const int stdin_rank = cfg->pty_rank < 0 && cfg->stdin_rank != STDIN_ALL ? cfg->stdin_rank : -1;
    return find_number(ret, "pty", cfg->pty_rank, text, world_size) ||
           find_number(ret, "stdin", stdin_rank, text, world_size) ||
           find_in_rules(ret, "env", w->env_rules, world_size) ||
           find_in_rules(ret, "wrap", w->wrap_rules, world_size) ||
           find_in_rules(ret, "preload", w->preload_rules, world_size);
}

/* True if --local-ranks-filter hides the workers of all nodes although it names ranks. */
static bool filter_hides_all(const char *filter, const struct plan *p)
{
    struct rank_map visible = {0};
    int most = 0; /* workers of a node */
    bool any = false;
    if (filter == NULL || *filter == '\0' ||
        rank_list_parse(&visible, filter, "--local-ranks-filter", NULL) < 0)
        return false;
    for (int i = 0; i < p->nnodes; i++)
        most = p->sizes[i] > most ? p->sizes[i] : most;
    for (int k = 0; k < most && !any; k++)
        any = rank_map_get(&visible, k) != 0;
    rank_map_done(&visible);
    return !any;
}

int rank_options_check(const struct agent_cfg *cfg, const struct plan *p, struct dd_err *err)
{
    struct missing_rank m;
    char text[16];
    char has[48] = "rank 0 only";
    const bool tells = p->round == 0 && p->node_rank == 0;
    if (tells && filter_hides_all(cfg->output.local_ranks_filter, p))
        dd_log(cfg->log, DD_LOG_WARN,
               "--local-ranks-filter=%s: no node has such a local rank; no output is shown",
               cfg->output.local_ranks_filter);
    if (!find_missing(&m, cfg, p->world_size, text))
        return 0;
    if (p->world_size > 1)
        (void)snprintf(has, sizeof(has), "ranks 0 to %d", p->world_size - 1);
    if (!rdzv_is_elastic(&cfg->rdzv))
        return dd_err_set(err, -ENOTSUP, "--%s=%.*s%s is out of range: the job has %s", m.option,
                          m.len, m.value, m.more, has);
    if (tells)
        dd_log(cfg->log, DD_LOG_WARN, "--%s=%.*s%s has no effect yet: the job has %s", m.option,
               m.len, m.value, m.more, has);
    return 0;
}
