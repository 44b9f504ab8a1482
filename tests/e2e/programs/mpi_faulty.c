/* mpi_faulty FAULT RANK: an MPI program in which one rank fails in the way that FAULT names, while
 * the others wait for it in MPI_Allreduce: abort (with 42), exit7, sleep, stop (SIGSTOP), barrier
 * (in MPI_Barrier instead), memory (takes more and more), full (writes to a full file system, then
 * calls MPI_Abort) or full-exit (then exits). Rank 0 prints "ready" first.
 *
 * FULL is a directory of a small file system. */
#define _GNU_SOURCE 1 /* O_PATH */
#include <errno.h>
#include <fcntl.h>
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

static void take_memory(void)
{
    for (size_t n = 1 << 20;;) {
        char *p = malloc(n);
        if (p != NULL)
            memset(p, 1, n);
    }
}

/* Fill the file system; return the errno of the write that fails. */
static int write_result(void)
{
    static const char block[1 << 16] = "result";
    const char *full = getenv("FULL");
    const int fd = openat(open(full != NULL ? full : "/dev", O_PATH | O_DIRECTORY), "full",
                          O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    return errno;
}

static void fail(const char *fault)
{
    if (strcmp(fault, "memory") == 0)
        take_memory();
    if (strncmp(fault, "full", 4) == 0) {
        fprintf(stderr, "heat: cannot write the result: %s\n", strerror(write_result()));
        if (strcmp(fault, "full") == 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
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
