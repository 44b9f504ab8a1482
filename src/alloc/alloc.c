#include "alloc/alloc_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 200 };

const struct alloc_ops *const alloc_table[] = {
    &alloc_etcd,        &alloc_hosts, &alloc_hostfile, &alloc_explicit,  &alloc_slurm_step,
    &alloc_slurm_batch, &alloc_pbs,   &alloc_cobalt,   &alloc_cobalt_xc, &alloc_lsf,
    &alloc_sge,         &alloc_oar,   &alloc_flux,     &alloc_launched,  &alloc_endpoint,
    &alloc_local,       NULL,
};

void alloc_free(struct alloc *a)
{
    if (a == NULL)
        return;
    free(a->job_id);
    free(a->requeue_id);
    free(a->run_id);
    hostlist_free(a->nodes);
    free(a->host_addr);
    free(a->psk);
    free(a->cookie);
    dd_strv_done(&a->gpus);
    dd_strv_done(&a->warnings);
    free(a);
}

bool alloc_is_pbs(const struct alloc *a)
{
    return a != NULL && strcmp(a->source, alloc_pbs.name) == 0;
}

static char *copy_text(const char *s, bool *failed)
{
    char *copy = s != NULL ? strdup(s) : NULL;
    *failed |= s != NULL && copy == NULL;
    return copy;
}

int alloc_copy(struct alloc **ret, const struct alloc *a, int index)
{
    bool failed = false;
    DD_AUTO(alloc) struct alloc *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    *c = *a;
    c->index = index;
    c->warnings = c->gpus = (struct dd_strv){0};
    c->nodes = NULL;
    c->job_id = copy_text(a->job_id, &failed);
    c->requeue_id = copy_text(a->requeue_id, &failed);
    c->run_id = copy_text(a->run_id, &failed);
    c->host_addr = copy_text(a->host_addr, &failed);
    c->psk = copy_text(a->psk, &failed);
    c->cookie = copy_text(a->cookie, &failed);
    if (failed || hostlist_new(&c->nodes) < 0 || dd_strv_copy(&c->gpus, a->gpus.v) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < hostlist_count(a->nodes); i++)
        if (hostlist_push(c->nodes, hostlist_nth(a->nodes, i)) < 0)
            return -ENOMEM;
    *ret = DD_TAKE(c);
    return 0;
}

static int check_options(const struct alloc_input *in, struct dd_err *err)
{
    if (in->min_nodes < 0 || in->max_nodes < in->min_nodes || in->max_nodes > HOSTLIST_MAX)
        return dd_err_set(err, -EINVAL, "--nnodes=%d:%d is not a range of nodes from 1 to %d",
                          in->min_nodes, in->max_nodes, HOSTLIST_MAX);
    char nnodes[ALLOC_NNODES];
    /* with spares, --node-rank is a position in the list, which may exceed --nnodes */
    bool has_spares = in->spares && (in->hosts != NULL || in->hostfile != NULL);
    if (!has_spares && in->max_nodes > 0 && in->node_rank >= in->max_nodes)
        return dd_err_tip(err,
                          dd_err_set(err, -EINVAL, "--node-rank=%d is out of range for --nnodes=%s",
                                     in->node_rank, alloc_show_nnodes(nnodes, in)),
                          "ranks count from 0");
    if (in->master_port < 0 || in->master_port > 65535)
        return dd_err_set(err, -EINVAL, "--master-port=%d is not a port from 1 to 65535",
                          in->master_port);
    return 0;
}

/* ---- variables of several jobs ---- */

/* Set *ret to the job that the variables of a source describe; its index is -1 if this host is not
 * a node of it. False: they describe none. */
static bool claims(struct alloc **ret, const struct alloc_ops *ops, const struct alloc_input *in)
{
    struct alloc_input list = *in;
    DD_AUTO(alloc) struct alloc *a = calloc(1, sizeof(*a));
    list.list_only = true;
    list.min_nodes = list.max_nodes = 0;
    if (a == NULL || ops->detect(&list, &a->warnings, NULL) != 1 || ops->fill(a, &list, NULL) < 0)
        return false;
    a->source = ops->name;
    a->index = alloc_find_me(in, a->nodes) == -ENOENT ? -1 : 0;
    *ret = DD_TAKE(a);
    return true;
}

static int two_jobs(const struct alloc_ops *ops, const struct alloc *a,
                    const struct alloc_ops *other, const struct alloc *b,
                    const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_shown shown[2];
    return dd_err_set(
        err, -EINVAL,
        "the environment has variables of two jobs, and this host (%s) is in %s: %.60s (%s, "
        "%s) and %.60s (%s, %s)"
        "\n  tip: unset %s or %s, whichever are stale",
        in->hostname, a->index < 0 ? "neither of them" : "both", a->run_id, a->source,
        alloc_show(&shown[0], a->nodes), b->run_id, b->source, alloc_show(&shown[1], b->nodes),
        ops->variables, other->variables);
}

/* Variables of a scheduler are inherited by jobs that are submitted to another one. Return 0: no
 * other source describes this process; 1: the source in row i is stale, with a warning; -EINVAL:
 * ambiguous. */
static int is_left_over(size_t i, const struct alloc_input *in, struct dd_strv *warnings,
                        struct dd_err *err)
{
    const struct alloc_ops *ops = alloc_table[i];
    DD_AUTO(alloc) struct alloc *a = NULL;
    struct alloc_shown shown;
    if (ops->variables == NULL)
        return 0;
    for (size_t k = i + 1; alloc_table[k] != NULL; k++) {
        const struct alloc_ops *other = alloc_table[k];
        DD_AUTO(alloc) struct alloc *b = NULL;
        if (other->variables == NULL || strcmp(other->variables, ops->variables) == 0 ||
            !claims(&b, other, in))
            continue;
        if (a == NULL && !claims(&a, ops, in))
            return 0;
        if (strcmp(a->run_id, b->run_id) == 0 || /* Slurm can set PBS_* for its own jobs */
            (a->index >= 0 && b->index < 0))     /* the variables of `other` are stale */
            continue;
        if (a->index >= 0 || b->index < 0)
            return two_jobs(ops, a, other, b, in, err);
        int rc = dd_strv_pushf(
            warnings,
            "%s are stale variables of job %.60s: this host (%s) is not in %s, but in job %.60s "
            "(%s); ignoring them",
            ops->variables, a->run_id, in->hostname, alloc_show(&shown, a->nodes), b->run_id,
            b->source);
        return rc < 0 ? alloc_no_memory(err) : 1;
    }
    return 0;
}

/* Only this machine is left, although variables of a job name more nodes: fail instead of guessing.
 */
static int refuse_stale(const char *why, const struct alloc_ops *ops, const struct alloc_input *in,
                        struct dd_err *err)
{
    const char *end = strrchr(why, ';'); /* cut off "; ignoring …" */
    const int n = end != NULL ? (int)(end - why) : (int)strlen(why);
    if (in->list_only)
        return dd_err_set(err, -EINVAL,
                          "%.*s"
                          "\n  tip: %s, or unset %s",
                          n, why, ops->ask, ops->variables);
    return dd_err_set(err, -EINVAL,
                      "%.*s"
                      "\n  tip: %s; or unset %s, or use --nnodes=1 to run on this host (%s) alone",
                      n, why, ops->start, ops->variables, in->hostname);
}

/* True if this machine alone is acceptable although variables describe a job: the user has chosen
 * that, or the caller is a worker of ddrun, whose nodes are in DDRUN_NODES. */
static bool may_be_alone(const struct alloc_input *in)
{
    return in->max_nodes == 1 ||
           (in->list_only && dd_env_get_nonempty(in->env, "DDRUN_NODES") != NULL);
}

static int find_source(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    const struct alloc_ops *stale = NULL;
    const char *left_over = NULL;
    size_t said = 0; /* index of the warning about `stale` */
    for (size_t i = 0; alloc_table[i] != NULL; i++) {
        const struct alloc_ops *ops = alloc_table[i];
        if (left_over != NULL && ops->variables != NULL && strcmp(ops->variables, left_over) == 0)
            continue;
        int rc = ops == &alloc_local && stale != NULL && !may_be_alone(in)
                     ? refuse_stale(a->warnings.v[said], stale, in, err)
                     : ops->detect(in, &a->warnings, err);
        if (rc == 1 && (rc = is_left_over(i, in, &a->warnings, err)) >= 0) {
            left_over = rc > 0 ? ops->variables : left_over;
            rc = rc == 0;
        }
        if (rc == ALLOC_STALE && stale == NULL) {
            stale = ops;
            said = a->warnings.n - 1;
        }
        if (rc < 0)
            return rc;
        if (rc != 1)
            continue;
        a->source = ops->name;
        return ops->fill(a, in, err);
    }
    return dd_err_set(
        err, -ENOENT,
        "no scheduler, host list or endpoint names the nodes"); /* unreachable: the last source
                                                                   always applies */
}

bool alloc_is_told(const struct alloc_input *in)
{
    DD_AUTO(strv) struct dd_strv warnings = {0};
    for (size_t i = 0; alloc_table[i] != &alloc_launched; i++) {
        int rc = alloc_table[i]->detect(in, &warnings, NULL);
        if (rc != 0 && rc != ALLOC_STALE)
            return true;
    }
    return false;
}

static int append(char **id, const char *suffix)
{
    DD_AUTO(free) char *old = DD_TAKE(*id);
    return old != NULL ? alloc_set(id, "%s.%s", old, suffix) : 0;
}

static int append_to_ids(struct alloc *a, const char *suffix)
{
    int rc = append(&a->job_id, suffix);
    return rc < 0 ? rc : append(&a->requeue_id, suffix);
}

/* With --nnodes=1 among several nodes, make this node a job of its own. */
static int stand_alone(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_shown shown;
    if (a->index < 0)
        return dd_err_set(
            err, -EINVAL,
            "--nnodes=1 would use this host alone, but %s is not a node of the job (%s, source: "
            "%s)",
            in->hostname, alloc_show(&shown, a->nodes), a->source);
    DD_AUTO(hostlist) struct hostlist *me = NULL;
    char suffix[16];
    (void)snprintf(suffix, sizeof(suffix), "n%d", a->index);
    const char *name = hostlist_nth(a->nodes, (size_t)a->index);
    if (hostlist_new(&me) < 0 || hostlist_push(me, name) < 0 || append_to_ids(a, suffix) < 0)
        return alloc_no_memory(err);
    if (a->gpus.n > (size_t)a->index) {
        DD_AUTO(strv) struct dd_strv all = a->gpus;
        a->gpus = (struct dd_strv){0};
        if (dd_strv_push(&a->gpus, all.v[a->index]) < 0)
            return alloc_no_memory(err);
    }
    hostlist_free(a->nodes);
    a->nodes = DD_TAKE(me);
    a->nnodes = 1;
    a->index = 0;
    a->nports = 0; /* the scheduler's ports belong to one host of the job, not to each */
    return 0;
}

static int apply_nnodes(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_shown shown;
    if (in->max_nodes == 1 && a->nnodes > 1 && !in->spares)
        return stand_alone(a, in, err);
    int rc = alloc_check_nnodes(a->nodes, a->nnodes, a->source, in, err);
    if (rc < 0)
        return rc;
    if (in->node_rank >= 0 && a->index < 0 && !alloc_is_etcd(in))
        return dd_err_set(err, -EINVAL,
                          "--node-rank=%d contradicts the job (source: %s): this host (%s) is not "
                          "in %s"
                          "\n  tip: omit --node-rank",
                          in->node_rank, a->source, in->hostname, alloc_show(&shown, a->nodes));
    if (in->node_rank >= 0 && in->node_rank != a->index && !alloc_is_etcd(in))
        return dd_err_set(err, -EINVAL,
                          "--node-rank=%d contradicts this host's rank, %d in %s (source: %s)"
                          "\n  tip: omit --node-rank",
                          in->node_rank, a->index, alloc_show(&shown, a->nodes), a->source);
    return 0;
}

/* The id is part of a hello of limited size (net/hello.h). */
static int shorten_id(struct alloc *a, struct dd_err *err)
{
    if (strlen(a->job_id) <= ID_MAX)
        return 0;
    DD_AUTO(free) char *id = DD_TAKE(a->job_id);
    int rc = alloc_set(&a->job_id, "%.*s~%016" PRIx64, ID_MAX / 2, id, alloc_hash(id));
    return rc < 0 ? alloc_no_memory(err) : 0;
}

int alloc_name_run(struct alloc *a, const char *id, struct dd_err *err)
{
    char hash[17];
    if (*id == '\0')
        return dd_err_set(err, -EINVAL,
                          "invalid value '' for --rdzv-id: expected a name for the job");
    (void)snprintf(hash, sizeof(hash), "%016" PRIx64, alloc_hash(id));
    if (alloc_set(&a->run_id, "%s", id) < 0 || append_to_ids(a, alloc_id_ok(id) ? id : hash) < 0)
        return alloc_no_memory(err);
    return shorten_id(a, err);
}

/* Apply the endpoint and the job's name as far as the user has set them. */
static int apply_rendezvous(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_hostport meet;
    int rc = alloc_meet(&meet, in, err);
    if (rc < 0)
        return rc;
    if (meet.port > 0) {
        a->ports[0] = (uint16_t)meet.port;
        a->nports = 1;
        a->port_is_fixed = true;
    }
    if (meet.host[0] != '\0' && a->nnodes > 1)
        rc = alloc_set(&a->host_addr, "%s", meet.host);
    if (rc == 0 && in->rdzv_id != NULL)
        return alloc_name_run(a, in->rdzv_id, err);
    if (rc == 0 && a->run_id == NULL)
        rc = alloc_set(&a->run_id, "none"); /* the same name as in torchrun */
    return rc < 0 ? alloc_no_memory(err) : 0;
}

int alloc_find(struct alloc **ret, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(alloc) struct alloc *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return alloc_no_memory(err);
    int rc = check_options(in, err);
    if (rc == 0)
        rc = find_source(a, in, err);
    if (rc == 0)
        rc = apply_nnodes(a, in, err);
    if (rc == 0)
        rc = apply_rendezvous(a, in, err);
    if (rc == 0)
        rc = shorten_id(a, err);
    if (rc == 0)
        *ret = DD_TAKE(a);
    return rc;
}
