/* All-reduce over all GPUs of a job, with NCCL. Written for one worker per GPU.
 *
 *     cc nccl_allreduce.c $(pkg-config --cflags --libs ddrun) -I$CUDA_HOME/include \
 *         -L$CUDA_HOME/lib64 -lcudart -lnccl -ldl -o nccl_allreduce
 *     srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 ddrun ./nccl_allreduce [NUMBERS]
 *
 * The ranks need no shared file system, no MPI and no port of their own to find each other: they
 * exchange the ids of NCCL, one for each 128 ranks, through the store that ddrun serves. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <ddrun/nccl.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 120000 };

static void check(int good, const char *fmt, ...)
{
    va_list ap;
    if (good)
        return;
    va_start(ap, fmt);
    fprintf(stderr, "nccl_allreduce: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static void check_cuda(cudaError_t e)
{
    check(e == cudaSuccess, "CUDA: %s", cudaGetErrorString(e));
}

/* Each rank contributes its number plus one. */
static float sum_of_ranks(const struct ddrun *d, ncclComm_t comm, size_t n)
{
    float *numbers = NULL, first = (float)ddrun_rank(d) + 1.0F;
    cudaStream_t stream;
    check_cuda(cudaStreamCreate(&stream));
    check_cuda(cudaMalloc((void **)&numbers, n * sizeof(*numbers)));
    check_cuda(cudaMemset(numbers, 0, n * sizeof(*numbers)));
    check_cuda(cudaMemcpy(numbers, &first, sizeof(first), cudaMemcpyHostToDevice));
    ncclResult_t r = ncclAllReduce(numbers, numbers, n, ncclFloat, ncclSum, comm, stream);
    check(r == ncclSuccess, "NCCL: %s", ncclGetErrorString(r));
    check_cuda(cudaStreamSynchronize(stream));
    check_cuda(cudaMemcpy(&first, numbers, sizeof(first), cudaMemcpyDeviceToHost));
    check_cuda(cudaFree(numbers));
    return first;
}

int main(int argc, char **argv)
{
    struct ddrun *d = NULL;
    struct ddrun_nccl nccl;
    ncclComm_t comm = NULL;
    int gpus = 0;
    size_t n = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 1 << 20;
    check(ddrun_init(&d, TIMEOUT_MS) == 0, "%s", ddrun_error());
    check_cuda(cudaGetDeviceCount(&gpus));
    check(gpus > 0 && n > 0, "no GPU, or no numbers");
    check_cuda(cudaSetDevice(ddrun_local_rank(d) % gpus));
    check(ddrun_nccl_load(&nccl) == 0, "%s", nccl.error);
    check(ddrun_nccl_comm(d, NULL, &nccl, NULL, &comm, TIMEOUT_MS) == 0, "%s", nccl.error);
    float sum = sum_of_ranks(d, comm, n), size = (float)ddrun_size(d);
    check(sum == size * (size + 1.0F) / 2.0F, "rank %d: the sum is %.0f", ddrun_rank(d),
          (double)sum);
    if (ddrun_rank(d) == 0)
        printf("%d ranks, %zu numbers: the sum is right\n", ddrun_size(d), n);
    ncclCommDestroy(comm);
    ddrun_free(d);
    return 0;
}
