/* PBS (OpenPBS, PBS Pro): pbsdsh, pbs_tmrsh or an mpiexec has started one agent per host of the
 * node file; in the job script, there is only one ddrun.
 *
 * Src: measured with OpenPBS 23.06.06; recorded environments in tests/data/env.
 * - Every process of the job has PBS_JOBID, PBS_JOBCOOKIE, PBS_NODENUM and PBS_TASKNUM. PBS_TASKNUM
 *   is 1 in the script, and 8 hex digits in tasks that the TM interface has started.
 * - TM tasks on the first node lack PBS_NODEFILE, but the file exists.
 * - The file lists a host once per MPI process (mpiprocs), not always on adjacent lines, and omits
 * it with mpiprocs=0. PBS_NODENUM counts all hosts of the job, including omitted ones, so it is an
 *   index of our list only if no host is omitted; names take precedence.
 * - mpiexec may forward the script's environment: PBS_TASKNUM=1 and PBS_NODENUM=0 in every process.
 *   The variables of mpiexec itself then distinguish the processes.
 */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *var(const struct alloc_input *in, const char *name)
{
    return dd_env_get_nonempty(in->env, name);
}

enum starter { BY_SCRIPT, BY_TM, BY_MPI, BY_UNKNOWN };

static enum starter starter_of(const struct alloc_input *in)
{
    const char *task = var(in, "PBS_TASKNUM");
    if (alloc_is_mpi(in))
        return BY_MPI;
    if (task == NULL)
        return BY_UNKNOWN;
    task += strspn(task, "0");
    return strcmp(task, "1") == 0 ? BY_SCRIPT : BY_TM;
}

/* Src: pbs_mom of TORQUE 6; there a task of another node than the first may have no file. */
static bool is_torque(const struct alloc_input *in)
{
    const char *version = var(in, "PBS_VERSION");
    return version != NULL && strncmp(version, "TORQUE", 6) == 0;
}

static int read_nodes(struct hostlist **ret, const struct alloc_input *in, char **path,
                      struct dd_err *err)
{
    const char *named = var(in, "PBS_NODEFILE");
    int rc = named != NULL ? alloc_set(path, "%s", named)
                           : alloc_set(path, "/var/spool/%s/aux/%s",
                                       is_torque(in) ? "torque" : "pbs", var(in, "PBS_JOBID"));
    return rc < 0 ? alloc_no_memory(err) : alloc_hostfile_read(ret, in, *path, err);
}

static int stale(const struct alloc_input *in, struct dd_strv *warnings, const char *why,
                 struct dd_err *err)
{
    int rc = dd_strv_pushf(warnings,
                           "PBS_JOBID=%.80s is stale, or belongs to a job of another machine: %s; "
                           "ignoring it",
                           var(in, "PBS_JOBID"), why);
    return rc < 0 ? alloc_no_memory(err) : ALLOC_STALE;
}

static int say_mpiexec(const struct alloc_input *in, const struct hostlist *nodes,
                       struct dd_err *err)
{
    struct alloc_shown shown;
    size_t n = hostlist_count(nodes);
    int rc = alloc_check_nnodes(nodes, (int)n, alloc_pbs.name, in, err);
    if (rc < 0)
        return rc;
    return dd_err_set(
        err, -EINVAL,
        "ddrun was started once, from the script of job %.80s, which has %zu node%s (%s), "
        "and cannot start %s"
        "\n  tip: run: mpiexec -n %zu --ppn 1 ddrun ..., or: for h in $(sort -u "
        "$PBS_NODEFILE); do pbs_tmrsh $h /PATH/OF/ddrun ... & done; wait; or use --nnodes=1 "
        "to run on this host (%s) alone",
        var(in, "PBS_JOBID"), n, n == 1 ? "" : "s", alloc_show(&shown, nodes),
        n == 1 ? "one there" : "the others", n, in->hostname);
}

/* True if two names differ in their numbers only, as the nodes of one cluster do; compares up to
 * the first dot. */
static bool are_alike(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;;) {
        size_t m = strspn(a, digits);
        size_t n = strspn(b, digits);
        if ((m > 0) != (n > 0))
            return false;
        a += m;
        b += n;
        if (*a == '\0' || *a == '.' || *b == '\0' || *b == '.')
            return (*a == '\0' || *a == '.') && (*b == '\0' || *b == '.');
        if (*a++ != *b++)
            return false;
    }
}

/* Return the position from the variables of the MPI launcher or PBS_NODENUM if the file does not
 * contain this host's name, as in a container with its own host name. Fail for a node whose line is
 * missing. */
static int place_by_number(const struct alloc_input *in, const struct hostlist *nodes,
                           const char *path, struct dd_err *err)
{
    int num = -1;
    int n = (int)hostlist_count(nodes);
    struct alloc_shown shown;
    if (starter_of(in) == BY_MPI && (num = alloc_mpi_place(in, n)) >= 0 &&
        !are_alike(in->hostname, hostlist_nth(nodes, (size_t)num)))
        return num;
    if (starter_of(in) == BY_TM) {
        int rc = alloc_env_int(in, "PBS_NODENUM", 0, INT32_MAX, &num, err);
        if (rc < 0)
            return rc;
        if (num >= 0 && num < n && !are_alike(in->hostname, hostlist_nth(nodes, (size_t)num)))
            return num;
    }
    return dd_err_set(
        err, -EINVAL,
        "this host (%s) is not in %.200s (%s); its chunk may have mpiprocs=0"
        "\n  tip: request -l select=N:ncpus=C:ngpus=G:mpiprocs=1 -l place=scatter, or use "
        "--hostfile=%.200s --node-rank=R",
        in->hostname, path, alloc_show(&shown, nodes), path);
}

/* PBS_NODENUM counts the hosts in the order of the file, including those that are not in it: it can
 * be greater than the position in the file, never less. */
static int check_number(const struct alloc_input *in, int me, const char *path, struct dd_err *err)
{
    int num = me;
    int rc = starter_of(in) == BY_TM ? alloc_env_int(in, "PBS_NODENUM", 0, INT32_MAX, &num, err)
                                     : 0;
    if (rc < 0 || num >= me)
        return rc < 0 ? rc : me;
    return dd_err_set(
        err, -EINVAL,
        "PBS_NODENUM=%d belongs to another host: this host (%s) is number %d, counted from 0, in %.200s"
        "\n  tip: start ddrun with pbs_tmrsh, or unset PBS_TASKNUM and PBS_NODENUM",
        num, in->hostname, me, path);
}

/* Find the position of this host by name, or by the variables of PBS. */
static int find_place(const struct alloc_input *in, const struct hostlist *nodes, const char *path,
                      struct dd_err *err)
{
    int me = alloc_find_me(in, nodes);
    return me >= 0 ? check_number(in, me, path, err) : place_by_number(in, nodes, path, err);
}

/* A file of PBS itself is named after the job; a file of the user may have any name. */
static int check_file(const struct alloc_input *in, const char *job, struct dd_err *err)
{
    const char *path = var(in, "PBS_NODEFILE");
    const char *name = path != NULL ? strrchr(path, '/') : NULL;
    if (name == NULL || name - path < 4 || strncmp(name - 4, "/aux/", 5) != 0 ||
        strcmp(name + 1, job) == 0)
        return 0;
    return dd_err_set(
        err, -EINVAL,
        "PBS_NODEFILE=%.200s is not the node file of PBS_JOBID=%.80s; one of them is stale"
        "\n  tip: %s in the job's script, or unset PBS_*",
        path, job, alloc_either(in, "run ddrun", "run ddctl"));
}

static int no_file(const struct alloc_input *in, struct dd_strv *warnings, const char *path,
                   const struct dd_err *why, struct dd_err *err)
{
    enum starter by = starter_of(in);
    if (why->rc != -ENOENT && why->rc != -EACCES &&
        why->rc != -ENOTDIR) { /* the file exists, but is unusable */
        if (err != NULL)
            *err = *why;
        return why->rc;
    }
    if (by != BY_TM && by != BY_MPI)
        return stale(in, warnings, why->text, err);
    return dd_err_set(err, -EINVAL,
                      "cannot read the node file of job %.80s on this host (%.200s)"
                      "\n  tip: %s",
                      var(in, "PBS_JOBID"), why->text[0] != '\0' ? why->text : path,
                      alloc_either(in, "name the nodes with --hosts=LIST or --hostfile=FILE",
                                   "run ddctl in the job's script"));
}

static int check_list(const struct alloc_input *in, const struct hostlist *nodes, const char *path,
                      struct dd_strv *warnings, struct dd_err *err)
{
    char why[400];
    struct alloc_shown shown;
    int me = alloc_find_me(in, nodes);
    enum starter by = starter_of(in);
    if (hostlist_count(nodes) == 0)
        return dd_err_set(
            err, -EINVAL,
            "the node file %.200s of job %.80s is empty; all of its chunks may have mpiprocs=0"
            "\n  tip: request -l select=N:ncpus=C:ngpus=G:mpiprocs=1 -l place=scatter",
            path, var(in, "PBS_JOBID"));
    if (by == BY_UNKNOWN && me < 0) {
        (void)snprintf(why, sizeof(why), "this host (%.100s) is not in %s", in->hostname,
                       alloc_show(&shown, nodes));
        return stale(in, warnings, why, err);
    }
    if (by == BY_SCRIPT && in->list_only)
        return 1;
    if (by == BY_SCRIPT && in->max_nodes != 1 && (me < 0 || (me == 0 && hostlist_count(nodes) > 1)))
        return say_mpiexec(in, nodes, err);
    if (by == BY_SCRIPT && me < 0) /* --nnodes=1 on a host without MPI processes */
        return 0;
    return 1;
}

static int detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    DD_AUTO(free) char *path = NULL;
    struct dd_err why = {.text = ""};
    const char *job = var(in, "PBS_JOBID");
    if (job == NULL)
        return 0;
    if (!alloc_id_ok(job))
        return dd_err_set(err, -EINVAL, "PBS_JOBID=%.80s is not a valid job id", job);
    if (check_file(in, job, err) < 0)
        return -EINVAL;
    why.rc = read_nodes(&nodes, in, &path, &why);
    if (why.rc < 0)
        return no_file(in, warnings, path, &why, err);
    return check_list(in, nodes, path, warnings, err);
}

/* A requeued job keeps its id, and PBS counts no restarts. The cookie differs from run to run,
 * but is not part of the public id. It separates the runs where the key is proved (net/key.h).
 * It is not a key: it consists of four outputs of random() after srand(time()), so users can
 * compute the cookies of all other jobs of a host from the cookie of a job of their own. Src:
 * OpenPBS 23.06, start_job() in src/resmom/start_exec.c, add_transport_conn() in
 * src/lib/Libtpp/tpp_transport.c. */
static int set_job(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    const char *job = var(in, "PBS_JOBID");
    const char *launch = in->whole_job || !alloc_is_mpi(in) ? NULL : var(in, "PALS_APID");
    const char *cookie = var(in, "PBS_JOBCOOKIE");
    const bool several = launch != NULL &&
                         alloc_id_ok(launch); /* mpiexec may be called more than once in a job */
    int rc = alloc_set(&a->run_id, "%s", job);
    if (rc == 0)
        rc = several ? alloc_set(&a->job_id, "pbs.%s.%s", job, launch)
                     : alloc_set(&a->job_id, "pbs.%s", job);
    if (rc == 0)
        rc = alloc_set(&a->requeue_id, "pbs.%s", job);
    if (rc == 0)
        rc = alloc_add_command(a, in);
    a->requeued = true;
    if (rc == 0 && cookie != NULL)
        rc = alloc_set(&a->cookie, "%s", cookie);
    return rc < 0 ? alloc_no_memory(err) : 0;
}

static int fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(free) char *path = NULL;
    int rc = read_nodes(&a->nodes, in, &path, err);
    if (rc == 0)
        rc = alloc_pbs_gpus(a, in, err);
    if (rc == 0 && !in->list_only)
        rc = alloc_check_mpi(in, a->nodes, err);
    if (rc < 0)
        return rc;
    a->nnodes = (int)hostlist_count(a->nodes);
    a->script = starter_of(in) == BY_SCRIPT;
    a->index = find_place(in, a->nodes, path, err);
    if (in->list_only && a->index < 0)
        a->index = -1;
    else if (a->index < 0)
        return a->index;
    return set_job(a, in, err);
}

static bool own(char *const *env, char ret[ALLOC_ID_SIZE])
{
    return alloc_own_is(env, "PBS_JOBID", ret);
}

const struct alloc_ops alloc_pbs = {
    .name = "pbs",
    .doc =
        "PBS: the job's script, or one ddrun on each node, started by mpiexec, pbs_tmrsh or pbsdsh",
    .variables = "PBS_*",
    .start = "run ddrun in the job's script",
    .ask = "run ddctl in the job's script, or in a task that PBS started",
    .detect = detect,
    .fill = fill,
    .own = own,
};
