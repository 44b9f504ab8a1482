/* A barrier of ddrun before MPI_Finalize, for unmodified programs: MPICH 4.0 and 4.1 with UCX over
 * TCP may hang there on several nodes, under any launcher (docs/mpi.md).
 *
 *     cc -shared -fPIC -o libmpifinalize.so mpi_finalize.c $(pkg-config --cflags --libs ddrun)
 *     ddrun --mpi=auto --env=LD_PRELOAD=$PWD/libmpifinalize.so ./my_mpi_program
 *
 * It interposes on MPI_Finalize through MPI's profiling interface, so it needs no header of any
 * MPI. */
#include <ddrun/ddrun.h>
#include <stdio.h>

int PMPI_Finalize(void);

int MPI_Finalize(void)
{
    struct ddrun *d = NULL;
    if (ddrun_init(&d, -1) < 0 || ddrun_barrier(d, NULL, -1) < 0)
        fprintf(stderr, "MPI_Finalize without ddrun's barrier: %s\n", ddrun_error());
    ddrun_free(d);
    return PMPI_Finalize();
}
