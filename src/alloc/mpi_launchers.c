/* Variables of the launchers of MPI programs. If one ddrun runs on each node, its rank is the index
 * of the node; several on one node are an error, since each would start all workers of the node.
 *
 * Src: HPE PALS, MPICH's hydra, Open MPI's mpirun, Intel MPI, IBM's jsrun, Cray's aprun: manuals
 * and public sources.
 */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

struct row {
    const char *rank, *size, *local_size; /* NULL: the launcher does not set it */
    const char *node; /* variable with the node's number; NULL: use the rank, with one process on
                         each node */
    const char *name;
    const char *write; /* command that starts one process on each of %zu nodes */
};

static const struct row rows[] = {
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", NULL, "jsrun",
     "jsrun -n %zu -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS"},
    {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_SIZE", "PALS_NODEID", "mpiexec",
     "mpiexec -n %zu --ppn 1 --cpu-bind none"},
    {"ALPS_APP_PE", NULL, NULL, "ALPS_APP_PE", "aprun", "aprun -n %zu -N 1 -cc none"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "mpirun",
     "mpirun -n %zu -npernode 1"},
    {"MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, "mpiexec", "mpiexec -n %zu --ppn 1"},
    {"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE", NULL, "mpiexec", "mpiexec -n %zu --ppn 1"},
    {"PMIX_RANK", NULL, "PMI_LOCAL_SIZE", NULL, "mpiexec", "mpiexec -n %zu --ppn 1"},
};

static const struct row *find_row(const struct alloc_input *in)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (dd_env_get_nonempty(in->env, rows[i].rank) != NULL)
            return &rows[i];
    return NULL;
}

static int number(const struct alloc_input *in, const char *name)
{
    const char *text = name != NULL ? dd_env_get_nonempty(in->env, name) : NULL;
    int n = -1;
    return text != NULL && dd_num_int(text, 0, INT32_MAX, &n) == 0 ? n : -1;
}

bool alloc_is_mpi(const struct alloc_input *in)
{
    return find_row(in) != NULL;
}

int alloc_check_mpi(const struct alloc_input *in, const struct hostlist *nodes, struct dd_err *err)
{
    const struct row *r = find_row(in);
    const size_t n = hostlist_count(nodes);
    struct alloc_shown shown;
    char write[80];
    if (r == NULL)
        return 0;
    const int here = number(in, r->local_size);
    const int all = number(in, r->size);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the format is in the table */
    (void)snprintf(write, sizeof(write), r->write, n);
#pragma GCC diagnostic pop
    if (here > 1)
        return dd_err_tip(
            err,
            dd_err_set(err, ALLOC_WRONG_FOR_ALL,
                       "%s started %d copies of ddrun on this node (%s); it needs one per node",
                       r->name, here, r->local_size),
            "run: %s ddrun --nproc-per-node=%d ...", write, here);
    if (here != 1 || all < 1 || (size_t)all == n || in->max_nodes > 0)
        return 0;
    return dd_err_set(err, -EINVAL,
                      "%s started %d cop%s of ddrun (%s), but the job has %zu node%s (%s)"
                      "\n  tip: run: %s ddrun ..., or name the nodes to use with --hosts=LIST",
                      r->name, all, all == 1 ? "y" : "ies", r->size, n, n == 1 ? "" : "s",
                      alloc_show(&shown, nodes), write);
}

int alloc_mpi_place(const struct alloc_input *in, int n)
{
    const struct row *r = find_row(in);
    if (r == NULL ||
        (r->node == NULL && (number(in, r->local_size) != 1 || number(in, r->size) != n)))
        return -ENOENT;
    const int place = number(in, r->node != NULL ? r->node : r->rank);
    return place >= 0 && place < n ? place : -ENOENT;
}
