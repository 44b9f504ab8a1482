#include "agent/requeue.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "alloc/endtime.h"
#include "worker/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 5000, REQUEUE_MS = 10000 };

static const struct {
    const char *name;
    const char *says;
    int bit;
} reasons[] = {
    {"preempt", "the job was preempted", REQUEUE_PREEMPT},
    {"timeout", "the time limit was reached", REQUEUE_TIMEOUT},
    {"node-loss", "a node was lost", REQUEUE_NODE_LOSS},
};

enum { REASONS = sizeof(reasons) / sizeof(reasons[0]) };

int requeue_parse(const char *text, struct dd_err *err)
{
    int bits = 0;
    for (const char *p = text; *p != '\0'; p += *p == ',') {
        size_t len = strcspn(p, ",");
        int bit = 0;
        for (size_t i = 0; i < REASONS; i++)
            if (strlen(reasons[i].name) == len && strncmp(reasons[i].name, p, len) == 0)
                bit = reasons[i].bit;
        if (bit == 0)
            return dd_err_set(
                err, -EINVAL,
                "invalid value '%.*s': expected preempt, timeout or node-loss, separated by commas",
                (int)len, p);
        bits |= bit;
        p += len;
    }
    return bits;
}

int requeue_reason(const struct requeue_end *e)
{
    if (e->code == 0 || e->rule == EXIT_NO_REQUEUE)
        return 0;
    if (e->rule == EXIT_REQUEUE && !e->stopped)
        return REQUEUE_BY_RULE;
    if (e->node_lost)
        return REQUEUE_NODE_LOSS;
    if (e->stopped)
        return REQUEUE_ASK;
    return e->end_near ? REQUEUE_TIMEOUT : 0;
}

/* ---- the command ---- */

struct requeue {
    struct agent_loop *loop;
    int on; /* bits of REQUEUE_* */
    int reason;
    const char *slurm, *pbs; /* job id; NULL: not in a job of this scheduler */
    bool begun;
    struct command *command;
};

static void requeue_over(struct requeue *r)
{
    command_free(r->command);
    r->command = NULL;
    agent_step(r->loop, (struct am_event){.kind = AM_REQUEUED});
}

static int requeue_run(struct requeue *r, const char *const *argv, unsigned limit_ms,
                       command_done_f *done, struct dd_err *err)
{
    const struct command_spec spec = {.argv = argv,
                                      .directory = r->slurm == NULL ? ALLOC_PBS_DIRECTORY : NULL,
                                      .env = r->loop->cfg->env,
                                      .limit_ms = limit_ms};
    return command_start(&r->command, r->loop->base, &spec, done, r, err);
}

static const char *requeue_says(int reason)
{
    for (size_t i = 0; i < REASONS; i++)
        if (reasons[i].bit == reason)
            return reasons[i].says;
    return reason == REQUEUE_BY_RULE ? "its exit code requests it (--exit-rules)"
                                     : "the reason of its end is unknown";
}

static void requeue_refused(const struct requeue *r, const char *why)
{
    const bool forbidden = r->slurm == NULL && strstr(why, "Unauthorized") != NULL;
    dd_log(r->loop->cfg->log, DD_LOG_WARN, "%s did not requeue job %.80s (%s): %.*s%s",
           r->slurm != NULL ? "Slurm" : "PBS", r->slurm != NULL ? r->slurm : r->pbs,
           requeue_says(r->reason), (int)strcspn(why, "\n"), why,
           forbidden ? "\n  tip: PBS permits qrerun to its managers and operators only; ask the "
                       "administrators of the cluster"
                     : "");
}

static void on_requeued(void *arg, int code, const char *out)
{
    struct requeue *r = arg;
    char line[240];
    const char *scheduler = r->slurm != NULL ? "Slurm" : "PBS";
    /* The scheduler has killed the command, since it is already ending the job to requeue it.
     * qrerun may also exit with such a code by itself (the lowest byte of an error of PBS), but
     * then prints an error. */
    const bool killed = code > 128 && out[0] == '\0';
    const char *job = r->slurm != NULL ? r->slurm : r->pbs;
    if (killed)
        dd_log(r->loop->cfg->log, DD_LOG_NOTICE,
               "%s was asked to requeue job %.80s: %s; the job ended before %s answered", scheduler,
               job, requeue_says(r->reason), scheduler);
    else if (code == 0)
        dd_log(r->loop->cfg->log, DD_LOG_NOTICE, "%s will requeue job %.80s: %s", scheduler, job,
               requeue_says(r->reason));
    else if (code == COMMAND_TOO_LATE)
        dd_log(r->loop->cfg->log, DD_LOG_WARN,
               "%s has not answered the request to requeue job %.80s (%s) within %d s", scheduler,
               job, requeue_says(r->reason), REQUEUE_MS / 1000);
    else if (out[0] == '\0') {
        (void)snprintf(line, sizeof(line), "%s exited with code %d",
                       r->slurm != NULL ? "scontrol" : "qrerun", code);
        requeue_refused(r, line);
    } else
        requeue_refused(r, dd_log_escape(line, sizeof(line), out, strcspn(out, "\n")));
    requeue_over(r);
}

/* Run the requeue command if --requeue-on names the reason, or if a rule of --exit-rules is the
 * reason. < 0: not started. */
static int requeue_now(struct requeue *r, int reason)
{
    const char *scontrol[] = {"scontrol", "requeue", r->slurm, NULL};
    const char *qrerun[] = {"qrerun", r->pbs, NULL};
    struct dd_err err = {0};
    if ((reason & (r->on | REQUEUE_BY_RULE)) == 0)
        return -ENOENT;
    r->reason = reason;
    int rc = requeue_run(r, r->slurm != NULL ? scontrol : qrerun, REQUEUE_MS, on_requeued, &err);
    if (rc < 0)
        dd_log(r->loop->cfg->log, DD_LOG_WARN, "cannot requeue job %.80s (%s): %s",
               r->slurm != NULL ? r->slurm : r->pbs, requeue_says(reason), err.text);
    return rc;
}

static void on_why(void *arg, int code, const char *out)
{
    struct requeue *r = arg;
    enum alloc_end why = code == 0 ? alloc_slurm_why(out) : ALLOC_END_OTHER;
    command_free(r->command);
    r->command = NULL;
    int reason = why == ALLOC_END_PREEMPTED ? REQUEUE_PREEMPT
                 : why == ALLOC_END_TIMEOUT ? REQUEUE_TIMEOUT
                                            : 0;
    if (requeue_now(r, reason) < 0)
        requeue_over(r);
}

static void requeue_begin(struct requeue *r, int reason)
{
    const struct agent_cfg *c = r->loop->cfg;
    r->slurm = alloc_is_pbs(c->alloc) ? NULL : dd_env_get_nonempty(c->env, "SLURM_JOB_ID");
    r->pbs = r->slurm == NULL ? dd_env_get_nonempty(c->env, "PBS_JOBID") : NULL;
    const char *argv[] = {"scontrol", "show", "job", "-o", r->slurm, NULL};
    struct dd_err err = {0};
    r->begun = true;
    if (r->slurm == NULL && r->pbs == NULL && reason != REQUEUE_ASK)
        dd_log(c->log, DD_LOG_WARN,
               "%s: cannot requeue the job: ddrun does not run in a job of Slurm or PBS",
               reason == REQUEUE_BY_RULE ? "--exit-rules" : "--requeue-on");
    else if (reason != REQUEUE_ASK)
        (void)requeue_now(r, reason);
    else if (r->slurm != NULL && requeue_run(r, argv, ASK_MS, on_why, &err) < 0)
        requeue_refused(r, err.text);
}

void requeue_start(struct requeue *r, const struct requeue_end *e)
{
    const int reason = requeue_reason(e);
    if (reason != 0 && (r->on != 0 || reason == REQUEUE_BY_RULE) && !r->begun)
        requeue_begin(r, reason);
    if (r->command == NULL)
        agent_step(r->loop, (struct am_event){.kind = AM_REQUEUED});
}

int requeue_new(struct requeue **ret, struct agent_loop *loop, int on)
{
    struct requeue *r = *ret = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    *r = (struct requeue){.loop = loop, .on = on};
    return 0;
}

void requeue_free(struct requeue *r)
{
    if (r != NULL)
        command_free(r->command);
    free(r);
}
