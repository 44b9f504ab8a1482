/* mpi_faulty FAULT RANK: an MPI program in which one rank fails in the way that FAULT names, while
 * the others wait for it in MPI_Allreduce: abort (with 42), exit7, sleep, stop (SIGSTOP), or
 * barrier (in MPI_Barrier instead). Rank 0 prints "ready" first. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void sum_up(void)
{
    double in = 1;
    double out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void read_block(void)
{
    sleep(600);
}

static void fail(const char *fault)
{
    if (strcmp(fault, "abort") == 0) {
        fprintf(stderr, "heat: the solver diverged at step 3\n");
        MPI_Abort(MPI_COMM_WORLD, 42);
    }
    if (strcmp(fault, "exit7") == 0)
        _exit(7);
    if (strcmp(fault, "sleep") == 0)
        read_block();
    if (strcmp(fault, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(fault, "barrier") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; i++)
        sum_up();
    if (rank == 0 && write(1, "ready\n", 6) != 6)
        return 8;
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 2 && atoi(argv[2]) == rank)
        fail(argv[1]);
    sum_up();
    MPI_Finalize();
    return 0;
}
