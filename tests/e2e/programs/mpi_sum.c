/* An MPI program and its possible ends: mpi_sum [before] [HOW RANK [ROUND]]
 *
 * RANK ends by HOW after all ranks have printed: abort (with 42), kill, exit0, exit7, wait (until
 * stopped). "before": only in ddrun's rounds before ROUND. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG = 1 << 17 };

static int sums_right(int rank, int size)
{
    static double in[BIG];
    static double out[BIG];
    for (int i = 0; i < BIG; i++)
        in[i] = rank + 1;
    MPI_Allreduce(in, out, BIG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return (int)out[BIG - 1] == size * (size + 1) / 2;
}

static void end(const char *how)
{
    if (strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 42);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exit0") == 0)
        _exit(0);
    if (strcmp(how, "exit7") == 0)
        _exit(7);
    if (strcmp(how, "wait") == 0)
        pause();
}

int main(int argc, char **argv)
{
    int rank, size, node_rank, node_size;
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    if (!sums_right(rank, size))
        return 9;
    const char *round = getenv("DDRUN_ROUND");
    const char *said = getenv("RANK");
    char line[160];
    int n = snprintf(line, sizeof(line), "rank %d/%d node %d/%d RANK %s round %s\n", rank, size,
                     node_rank, node_size, said != NULL ? said : "-", round != NULL ? round : "-");
    if (write(1, line, (size_t)n) != n)
        return 8;
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have printed before one ends */
    int before = argc > 4 && strcmp(argv[1], "before") == 0;
    char **how = argv + 1 + before;
    if (argc > 2 + before && atoi(how[1]) == rank &&
        (!before || round == NULL || atoi(round) < atoi(how[2])))
        end(how[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
