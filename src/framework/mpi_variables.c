/* MPI: rank and sizes in the variables of MPI launchers, and the variables by which Open MPI 4
 * recognizes a launcher. agent/mpi_servers.c serves the protocols by which ranks find each other.
 * Src: Open MPI 4.1.4, measured; the documents of MPICH, Intel MPI and MVAPICH2. */
#include "framework/rows.h"

int framework_mpi(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    const struct plan *p = in->plan;
    const int rank = p->first_rank + in->local_rank;
    const struct framework_number rows[] = {
        {"PMI_RANK", rank},
        {"PMI_SIZE", p->world_size},
        {"MPI_LOCALRANKID", in->local_rank},
        {"MPI_LOCALNRANKS", p->local_size},
        {"MV2_COMM_WORLD_RANK", rank},
        {"MV2_COMM_WORLD_SIZE", p->world_size},
        {"MV2_COMM_WORLD_LOCAL_RANK", in->local_rank},
        {"MV2_COMM_WORLD_LOCAL_SIZE", p->local_size},
        {"OMPI_COMM_WORLD_RANK", rank},
        {"OMPI_COMM_WORLD_SIZE", p->world_size},
        {"OMPI_COMM_WORLD_LOCAL_RANK", in->local_rank},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", p->local_size},
        {"OMPI_COMM_WORLD_NODE_RANK", in->local_rank},
        {"OMPI_UNIVERSE_SIZE", p->world_size},
    };
    /* These variables let Open MPI 4 find that a launcher has started the process, which is then no
     * singleton, and that it must not bind the process to CPUs. Open MPI 5 needs none of them. */
    static const char *const defaults[][2] = {
        {"OMPI_MCA_schizo", "ompi"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_orte_externally_bound", "1"},
    };
    int rc = 0;
    for (size_t i = 0; in->mpi && i < sizeof(defaults) / sizeof(defaults[0]) && rc == 0; i++)
        rc = framework_default(env, defaults[i][0], defaults[i][1]);
    if (in->mpi && rc == 0)
        rc = framework_numbers(env, rows, sizeof(rows) / sizeof(rows[0]));
    return rc;
}
