/* Every worker sends its host name to all others; rank 0 prints them.
 *
 *     cc hello_ddrun.c $(pkg-config --cflags --libs ddrun) -o hello_ddrun
 *     srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 ddrun --nproc-per-node=4 ./hello_ddrun
 *     ./hello_ddrun                     (alone: rank 0 of 1)
 *
 * docs/libddrun.md describes the library. */
#include <ddrun/ddrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000 };

int main(void)
{
    struct ddrun *d = NULL;
    struct ddrun_piece *hello = NULL;
    char host[256] = "", text[400];
    if (ddrun_init(&d, TIMEOUT_MS) < 0) {
        fprintf(stderr, "hello_ddrun: %s\n", ddrun_error());
        return 1;
    }
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(text, sizeof(text),
                   "rank %d of %d: local rank %d of %d on node %d of %d, %s, process %d",
                   ddrun_rank(d), ddrun_size(d), ddrun_local_rank(d), ddrun_local_size(d),
                   ddrun_node_rank(d), ddrun_nodes(d), host, (int)getpid());
    int rc = ddrun_allgatherv(d, NULL, text, strlen(text), &hello, TIMEOUT_MS);
    if (rc < 0)
        fprintf(stderr, "hello_ddrun: %s\n", ddrun_error());
    for (int i = 0; rc == 0 && ddrun_rank(d) == 0 && i < ddrun_size(d); i++)
        puts((const char *)hello[i].data);
    free(hello);
    ddrun_free(d);
    return rc < 0 ? 1 : 0;
}
