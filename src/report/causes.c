#include "report/causes.h"

#include "report/report_inner.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static const struct failure_cause killed_by_oom = {
    .id = "oom-killer",
    .cause =
        "the kernel's OOM killer ended the worker: the memory limit of its cgroup is reached, or "
        "the node is out of memory",
    .tip = "request more memory (Slurm: --mem), or reduce the batch size or the number of data "
           "loaders",
};

static const struct failure_cause child_killed_by_oom = {
    .id = "oom-killer-child",
    .cause = "the kernel's OOM killer ended a process in the job's cgroup on this node: the memory "
             "limit of the cgroup is reached, or the node is out of memory",
    .tip = "request more memory (Slurm: --mem), or reduce the batch size or the number of data "
           "loaders",
};

static const struct failure_cause stuck_loader = {
    .id = "dataloader-worker-stuck",
    .cause =
        "a process of a DataLoader delivers no batch: it is stuck, or its data set is too slow",
    .tip = "look at the stack of the process, or set num_workers=0; "
           "multiprocessing_context='spawn' avoids deadlocks after fork()",
};

static const struct failure_cause early_exit = {
    .id = "early-exit",
    .cause = "a rank exited with 0 while others still needed it: it had nothing left to do, or "
             "returned too early",
    .tip = "let all ranks take the same number of steps; for uneven inputs, "
           "torch.distributed.algorithms.join has a context manager",
};

#define TIP_FOR_USER_SIGNAL                                                                        \
    "schedulers announce the end of a job with it (qsub -notify, sbatch --signal), and ddrun "     \
    "passes it on: handle it in the program"

/* Tip if the report names the culprit, in place of the advice to look for a rank. */
#define TIP_FOR_CULPRIT                                                                            \
    "find out what the culprit executes: its stack is above or in the JSON report; if it ends in " \
    "a library, rerun with --stacks-native for native frames"

static const struct failure_cause hung_in_mpi = {
    .id = "hang",
    .flags = CAUSE_HANG,
    .cause = "no sign of activity within --hang-timeout",
    .tip =
        "rerun with --stacks-native, which needs eu-stack or gdb on the nodes: it shows in which "
        "MPI function each rank waits, and for which rank",
};

/* The first row that matches applies, so specific texts stand before general ones.
 * Src: messages of CPython 3.11, PyTorch 2.13 (c10d, DataLoader, CUDA), NCCL 2.14 to 2.28, JAX 0.9,
 * TensorFlow 2.20, Open MPI 4.1 and 5.0, MPICH 4, glibc 2.36, Linux 6.1. */
static const struct failure_cause rows[] = {
    /* ---- messages of ddrun ---- */
    {.id = "hang",
     .texts = {"hung: no "},
     .flags = CAUSE_ANYWHERE | CAUSE_HANG,
     .cause = "no sign of activity within --hang-timeout",
     .tip = "one rank is probably stuck and the others wait for it: find the rank whose stack "
            "differs; rerun with --stacks-native for native frames",
     .tip_for_culprit = TIP_FOR_CULPRIT},
    /* ---- GPU ---- */
    {.id = "cuda-out-of-memory",
     .texts = {"CUDA out of memory", "torch.OutOfMemoryError", "CUDA error: out of memory",
               "CUDA_ERROR_OUT_OF_MEMORY"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the memory of the GPU is full",
     .tip = "reduce the batch size, or checkpoint activations"},
    {.id = "hip-out-of-memory",
     .texts = {"HIP out of memory"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the memory of the GPU is full",
     .tip = "reduce the batch size, or checkpoint activations"},
    {.id = "jax-out-of-memory",
     .texts = {"RESOURCE_EXHAUSTED: Out of memory", "OOM when allocating tensor",
               "ResourceExhaustedError"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the device is out of memory, as XLA or TensorFlow reports",
     .tip = "reduce the batch size; XLA_PYTHON_CLIENT_MEM_FRACTION limits what JAX reserves"},
    {.id = "gpu-ecc-error",
     .texts = {"uncorrectable ECC", "CUDA_ERROR_ECC_UNCORRECTABLE"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the GPU's memory has an uncorrectable ECC error",
     .tip = "exclude the node and report it to the administrator"},
    {.id = "gpu-lost",
     .texts = {"GPU has fallen off the bus", "GPU is lost", "CUDA_ERROR_DEVICE_UNAVAILABLE",
               "CUDA-capable device(s) is/are busy or unavailable"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the GPU does not answer, or another process holds it exclusively",
     .tip =
         "'nvidia-smi -q' and 'dmesg' on the node show its state; exclude the node if the GPU is "
         "lost"},
    {.id = "gpu-xid",
     .texts = {"NVRM: Xid"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the driver reports an error of the GPU (Xid)",
     .tip = "look up the number in NVIDIA's list of Xid errors; 48, 63, 64, 74, 79, 94 and 95 are "
            "faults of the hardware"},
    {.id = "nvlink-error",
     .texts = {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "an NVLink connection of the GPU has an uncorrectable error",
     .tip = "'nvidia-smi nvlink -e' shows the counters; exclude the node and report it to the "
            "administrator"},
    {.id = "cuda-device-assert",
     .texts = {"device-side assert triggered"},
     .flags = CAUSE_ANYWHERE,
     .cause = "an assertion failed in a GPU kernel, often an index or a label out of range",
     .tip = "rerun with -x CUDA_LAUNCH_BLOCKING=1: the traceback then names the operation"},
    {.id = "cuda-illegal-access",
     .texts = {"an illegal memory access was encountered", "CUDA_ERROR_ILLEGAL_ADDRESS"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a GPU kernel accessed memory that is not its own",
     .tip = "rerun with -x CUDA_LAUNCH_BLOCKING=1, or with compute-sanitizer; if only one node is "
            "affected, its GPU may be faulty"},
    {.id = "cuda-launch-failure",
     .texts = {"unspecified launch failure", "CUDA_ERROR_LAUNCH_FAILED"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a GPU kernel ended with a fault",
     .tip = "rerun with -x CUDA_LAUNCH_BLOCKING=1; 'dmesg' on the node shows the Xid"},
    {.id = "cuda-driver-too-old",
     .texts = {"driver version is insufficient for CUDA runtime version",
               "NVIDIA driver on your system is too old"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the node's NVIDIA driver is older than the program's CUDA library requires",
     .tip = "install a build for an older CUDA, or load the site's CUDA compatibility package"},
    {.id = "cuda-no-kernel-image",
     .texts = {"no kernel image is available for execution"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the program was not built for this type of GPU",
     .tip = "install a build for the GPU's compute capability, or set TORCH_CUDA_ARCH_LIST when "
            "building"},
    {.id = "torch-without-cuda",
     .texts = {"Torch not compiled with CUDA enabled"},
     .cause = "this PyTorch was built without CUDA",
     .tip = "install a build of PyTorch for CUDA, or activate the right environment"},
    {.id = "cuda-no-device",
     .texts = {"no CUDA-capable device", "Found no NVIDIA driver", "No CUDA GPUs are available",
               "CUDA_ERROR_NO_DEVICE"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the worker sees no GPU",
     .tip = "request GPUs from the scheduler, and check CUDA_VISIBLE_DEVICES"},
    {.id = "cuda-invalid-device",
     .texts = {"invalid device ordinal"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the worker uses the number of a GPU that it does not have or see",
     .tip = "reduce --nproc-per-node, and check CUDA_VISIBLE_DEVICES"},
    {.id = "cudnn",
     .texts = {"CUDNN_STATUS_", "cuDNN error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a cuDNN operation failed; CUDNN_STATUS_ALLOC_FAILED and _NOT_INITIALIZED often mean "
              "that GPU memory is full",
     .tip = "check 'nvidia-smi' for memory of other processes, and that only one version of cuDNN "
            "is in LD_LIBRARY_PATH"},
    {.id = "cublas",
     .texts = {"CUBLAS_STATUS_"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a cuBLAS operation failed; CUBLAS_STATUS_ALLOC_FAILED often means that GPU memory "
              "is full",
     .tip = "check 'nvidia-smi' for memory of other processes; rerun with "
            "-x CUDA_LAUNCH_BLOCKING=1"},
    /* ---- NCCL ---- */
    {.id = "nccl-timeout",
     .texts = {"collective operation timeout", "WorkNCCL::checkTimeout"},
     .flags = CAUSE_CASCADE | CAUSE_ANYWHERE,
     .cause = "an NCCL operation timed out: another rank did not take part in it, or the network "
              "failed",
     .tip = "rerun with a --hang-timeout shorter than the timeout of the process group: ddrun then "
            "reads the stacks before the ranks abort",
     .tip_for_culprit = TIP_FOR_CULPRIT},
    {.id = "nccl-remote-error",
     .texts = {"ncclRemoteError", "remote process exited or there was a network error",
               "Connection closed by remote peer", "NCCL communicator was aborted"},
     .flags = CAUSE_CASCADE | CAUSE_ANYWHERE,
     .cause = "an NCCL peer exited, or the network to this peer failed",
     .tip = "look for the error of the rank that exited first; if there is none, check the network "
            "between the nodes"},
    {.id = "nccl-network",
     .texts = {"NET/IB : Got completion", "NET/IB: Got completion", "NET/IB : Got async event"},
     .flags = CAUSE_CASCADE | CAUSE_ANYWHERE,
     .cause = "an InfiniBand operation of NCCL failed: the peer exited, or a link is faulty",
     .tip = "look for the error of the rank that exited first; if there is none, check the links "
            "with 'ibstat'"},
    {.id = "nccl-version",
     .texts = {"NCCL version mismatch", "incompatible NCCL versions"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the ranks use different versions of NCCL",
     .tip = "use the same environment on all nodes; -x NCCL_DEBUG=VERSION prints the version"},
    {.id = "nccl-duplicate-gpu",
     .texts = {"Duplicate GPU detected"},
     .flags = CAUSE_ANYWHERE,
     .cause = "two ranks use the same GPU",
     .tip = "call torch.cuda.set_device(LOCAL_RANK), and check CUDA_VISIBLE_DEVICES"},
    {.id = "nccl-system-error",
     .texts = {"ncclSystemError", "unhandled system error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a system call or a network call of NCCL failed",
     .tip = "rerun with -x NCCL_DEBUG=WARN; often NCCL_SOCKET_IFNAME names no interface of this "
            "node, or /dev/shm is full"},
    {.id = "nccl-cuda-error",
     .texts = {"ncclUnhandledCudaError", "unhandled cuda error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a CUDA call of NCCL failed",
     .tip = "rerun with -x NCCL_DEBUG=WARN for NCCL's own error"},
    {.id = "nccl-error",
     .texts = {"NCCL error", "ncclInternalError", "ncclInvalidUsage"},
     .cause = "an NCCL operation failed",
     .tip = "rerun with -x NCCL_DEBUG=WARN for NCCL's own error"},
    /* ---- data loaders ---- */
    {.id = "shm-full",
     .texts = {"insufficient shared memory", "unable to write to file </torch_",
               "is killed by signal: Bus error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "/dev/shm, through which data loaders pass their batches, is full",
     .tip = "enlarge /dev/shm, reduce num_workers, or set it to 0"},
    {.id = "dataloader-worker-killed",
     .texts = {"exited unexpectedly", "is killed by signal: "},
     .also = {"DataLoader worker"},
     .flags = CAUSE_ANYWHERE | CAUSE_MAY_BE_OOM,
     .cause = "a process of a DataLoader ended unexpectedly",
     .tip = "set num_workers=0 to see its error; if a signal killed it, check the memory of the "
            "node"},
    {.id = "dataloader-worker-lost",
     .texts = {"ConnectionResetError", "ConnectionRefusedError", "EOFError",
               "FileNotFoundError: [Errno 2]"},
     .also = {"resource_sharer"},
     .flags = CAUSE_MAY_BE_OOM,
     .cause = "a process of a DataLoader, which shared a tensor with this worker, ended "
              "unexpectedly",
     .tip = "set num_workers=0 to see its error; if a signal killed it, check the memory of the "
            "node"},
    {.id = "fork-of-cuda",
     .texts = {"Cannot re-initialize CUDA in forked subprocess"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a forked process uses CUDA, which its parent has already initialized",
     .tip = "use the start method 'spawn', or use no GPU in the Dataset"},
    {.id = "pickle",
     .texts = {"PicklingError", "Can't pickle", "cannot pickle", "Can't get local object"},
     .cause = "an object that is sent to another process cannot be pickled",
     .tip = "define functions and classes at the top of a module, or set num_workers=0"},
    /* ---- file systems ---- */
    {.id = "disk-full",
     .texts = {"No space left on device"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a file system is full",
     .tip = "'df -h' shows which one; TMPDIR sets where temporary files go"},
    {.id = "quota",
     .texts = {"Disk quota exceeded"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a disk quota is used up",
     .tip = "delete files, or write to another file system"},
    {.id = "read-only",
     .texts = {"Read-only file system"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a file system cannot be written: it is mounted read-only, or the kernel made it so "
              "after an error",
     .tip = "choose another directory; 'findmnt' on the node shows the file system, but not the "
            "copies of --stage"},
    {.id = "lustre-eviction",
     .texts = {"Cannot send after transport endpoint shutdown", "[Errno 108]",
               "This client was evicted"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a Lustre server has evicted this node, so that operations on open files fail",
     .tip = "rerun on another node; 'dmesg' and 'lfs check servers' on this one show the eviction"},
    {.id = "fuse-lost",
     .texts = {"Transport endpoint is not connected: '"}, /* a path follows, unlike for sockets */
     .flags = CAUSE_ANYWHERE,
     .cause = "a FUSE file system has lost the process that served it",
     .tip = "mount it again; if it is an image of --stage, 'dmesg' on the node may show that the "
            "kernel killed squashfuse"},
    {.id = "stale-handle",
     .texts = {"Stale file handle", "Stale NFS file handle"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a file on a network file system was removed or replaced while it was in use",
     .tip = "do not replace files of a running job; write a new file and rename it"},
    {.id = "io-error",
     .texts = {"Input/output error", "Remote I/O error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a disk or a file server reported an error",
     .tip = "'dmesg' on the node shows the device or the server"},
    {.id = "too-many-files",
     .texts = {"Too many open files"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the limit of open files of the process or the node is reached",
     .tip = "raise 'ulimit -n', or use fewer data loaders"},
    /* ---- the program and its environment ---- */
    {.id = "missing-module",
     .texts = {"No module named"},
     .cause = "the workers' Python environment lacks a module",
     .tip = "activate the right environment, or set PYTHON_EXEC"},
    {.id = "glibc-version",
     .texts = {"version `GLIBC_", "version `GLIBCXX_", "version `CXXABI_"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a program or library was built for a newer system than this node's",
     .tip = "use a build for this system, or run in a container; a newer libstdc++ may be in "
            "LD_LIBRARY_PATH"},
    {.id = "missing-library",
     .texts = {"cannot open shared object file"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a shared library is missing on this node",
     .tip = "load its environment module, or set LD_LIBRARY_PATH"},
    {.id = "undefined-symbol",
     .texts = {"undefined symbol: ", "symbol lookup error"},
     .flags = CAUSE_ANYWHERE,
     .cause = "two libraries are incompatible: one lacks a symbol that the other needs",
     .tip = "install versions that were built for each other; LD_LIBRARY_PATH may select another "
            "version"},
    {.id = "relative-import",
     .texts = {"attempted relative import with no known parent package"},
     .cause = "the program was started as a file, but is a module of a package",
     .tip = "start it as a module: ddrun -m PACKAGE.MODULE"},
    {.id = "import-error",
     .texts = {"ImportError"},
     .cause = "an import failed: the workers' Python environment differs from the expected one",
     .tip = "compare 'pip list' with an environment that works"},
    {.id = "syntax-error",
     .texts = {"SyntaxError", "IndentationError", "TabError"},
     .cause = "the program has a syntax error for this version of Python",
     .tip = "'python3 -m py_compile FILE' shows it; also check the version of Python on the nodes"},
    {.id = "debugger",
     .texts = {"BdbQuit"},
     .cause = "breakpoint() found no terminal, or the user left the debugger",
     .tip = "add --pty=RANK; torch.distributed.breakpoint() stops one rank only"},
    {.id = "interrupted",
     .texts = {"KeyboardInterrupt"},
     .flags = CAUSE_SENDER,
     .cause = "the worker received SIGINT; its sender is not known"},
    {.id = "sigterm-exception",
     .texts = {"SIGTERMException"},
     .flags = CAUSE_SENDER,
     .cause = "the worker received SIGTERM; its sender is not known",
     .tip = "check the scheduler's record of the job for a time limit, preemption or scancel"},
    {.id = "host-memory",
     .texts = {"DefaultCPUAllocator: can't allocate", "MemoryError", "std::bad_alloc",
               "Cannot allocate memory"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a memory allocation of the worker failed",
     .tip = "reduce the batch size, or request more memory (Slurm: --mem)"},
    {.id = "too-many-processes",
     .texts = {"can't start new thread", "fork: retry: Resource temporarily unavailable",
               "pthread_create failed",
               "BlockingIOError: [Errno 11] Resource temporarily unavailable"},
     .cause = "the limit of processes and threads of the user or the cgroup is reached",
     .tip = "'ulimit -u' and the cgroup's pids.max show the limits; set OMP_NUM_THREADS, use fewer "
            "data loaders"},
    {.id = "nan",
     .texts = {"loss is nan", "loss is NaN", "Loss is nan", "NaN or Inf found"},
     .cause = "the program stopped because a value is not a number (NaN)",
     .tip = "lower the learning rate, clip gradients, or skip the batch; "
            "torch.autograd.set_detect_anomaly finds the operation"},
    {.id = "nan-in-backward",
     .texts = {"returned nan values in its", "found NaN in local grad norm"},
     .cause = "a gradient is not a number (NaN)",
     .tip = "lower the learning rate, clip gradients, or skip the batch; if one node is always "
            "affected, its GPU may be faulty"},
    /* ---- the network and peers ---- */
    {.id = "port-in-use",
     .texts = {"Address already in use", "EADDRINUSE"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a port that the program wants to listen on is in use",
     .tip = "bind port 0, or use the store at MASTER_ADDR:MASTER_PORT"},
    {.id = "gloo-timeout",
     .texts = {"Timed out waiting", "Application timeout caused pair closure"},
     .also = {"gloo", "torch/distributed"},
     .flags = CAUSE_CASCADE,
     .cause = "a gloo operation timed out: another rank did not take part in it, or the network "
              "failed",
     .tip = "rerun with a --hang-timeout shorter than the timeout of the process group: ddrun then "
            "reads the stacks before the ranks abort",
     .tip_for_culprit = TIP_FOR_CULPRIT},
    {.id = "gloo-peer-lost",
     .texts = {"Connection closed by peer", "gloo/transport/tcp/pair.cc"},
     .also = {"gloo", "torch/distributed"},
     .flags = CAUSE_CASCADE,
     .cause = "the connection to a gloo peer failed: the peer may have exited or failed",
     .tip =
         "rerun with --log-dir=DIR and look for the earliest error in the logs of the other ranks"},
    {.id = "barrier-timeout",
     .texts = {"monitoredBarrier"},
     .flags = CAUSE_CASCADE,
     .cause = "a rank did not reach the barrier in time",
     .tip = "look at the ranks that the message names"},
    {.id = "store-timeout",
     .texts = {"wait timeout after", "DistStoreError", "client socket has timed out"},
     .flags = CAUSE_CASCADE,
     .cause = "the worker waited in vain for the store: another rank did not write a key, or the "
              "store did not answer",
     .tip = "look for the rank that did not start or is stuck",
     .tip_for_culprit = TIP_FOR_CULPRIT},
    {.id = "store-lost",
     .texts = {"DistNetworkError", "Failed to recv, got 0 bytes", "recvValue failed"},
     .flags = CAUSE_CASCADE,
     .cause = "the connection to the store failed: the process that serves it may have exited",
     .tip =
         "rerun with --log-dir=DIR and look for the earliest error in the logs of the other ranks"},
    {.id = "jax-peer-lost",
     .texts = {"JAX distributed service detected fatal errors", "heartbeat timeout",
               "Failed to send RPC to coordination service", "/tensorflow.CoordinationService/"},
     .flags = CAUSE_CASCADE | CAUSE_ANYWHERE,
     .cause = "JAX's coordination service lost another process, or was lost itself",
     .tip = "look for the error of the process that ended first"},
    {.id = "jax-barrier-timeout",
     .texts = {"Barrier timed out", "DEADLINE_EXCEEDED"},
     .also = {"jax", "tensorflow"},
     .flags = CAUSE_CASCADE,
     .cause = "a process did not reach a barrier of JAX or TensorFlow in time, or did not answer",
     .tip = "look for the process that did not start or is stuck",
     .tip_for_culprit = TIP_FOR_CULPRIT},
    {.id = "tensorflow-peer-lost",
     .texts = {"UnavailableError", "UNAVAILABLE: Socket closed",
               "failed to connect to all addresses"},
     .also = {"tensorflow", "jax"},
     .flags = CAUSE_CASCADE,
     .cause = "the connection to another TensorFlow task is lost",
     .tip = "look for the error of the task that ended first"},
    {.id = "horovod-shut-down",
     .texts = {"HorovodInternalError", "Horovod has been shut down"},
     .flags = CAUSE_CASCADE,
     .cause = "another Horovod process failed or exited",
     .tip = "look for the error of the process that ended first"},
    {.id = "mpi-peer-lost",
     .texts = {"Communication error with rank", "MPI_ERR_PROC_FAILED",
               "ORTE has lost communication", "mca_btl_tcp_frag_recv: readv failed"},
     .flags = CAUSE_CASCADE | CAUSE_ANYWHERE,
     .cause = "an MPI peer exited or is not reachable",
     .tip = "look for the error of the rank that exited first"},
    {.id = "pmix-missing",
     .texts = {"OPAL ERROR: Unreachable in file ext3x_client.c"},
     .flags = CAUSE_ANYWHERE,
     .cause = "Open MPI found no PMIx server",
     .tip = "use --mpi=auto, which serves PMIx, too"},
    {.id = "mpi-abort",
     .texts = {"MPI_ABORT was invoked", "application called MPI_Abort", "MPI_Abort(",
               "called MPI_Abort"},
     .flags = CAUSE_ANYWHERE,
     .cause = "the program called MPI_Abort, or the MPI library did after an error",
     .tip = "the lines above the abort name the error"},
    {.id = "server-unreachable",
     .texts = {"HTTPSConnectionPool(", "requests.exceptions.ConnectionError",
               "couldn't connect to 'https://", "botocore.exceptions."},
     .cause = "a request to a server outside the job failed",
     .tip = "compute nodes often have no route to the Internet: download on the login node, or "
            "set https_proxy"},
    {.id = "host-unknown",
     .texts = {"Name or service not known", "Temporary failure in name resolution",
               "No address associated with hostname"},
     .flags = CAUSE_ANYWHERE,
     .cause = "a host name has no address on this node",
     .tip =
         "'getent hosts NAME' shows how the node resolves a name; check MASTER_ADDR and proxies"},
    {.id = "host-unreachable",
     .texts = {"No route to host", "Network is unreachable"},
     .flags = CAUSE_ANYWHERE,
     .cause = "this node cannot reach another host: no route, or a firewall rejects the connection",
     .tip = "choose the interface of the right network with NCCL_SOCKET_IFNAME or "
            "GLOO_SOCKET_IFNAME"},
    {.id = "connection-refused",
     .texts = {"Connection refused", "ConnectionRefusedError"},
     .flags = CAUSE_CASCADE,
     .cause = "no process listens on the port that the worker connects to: it has exited, or has "
              "not started",
     .tip = "look for the error of the process that should listen there"},
    {.id = "connection-reset",
     .texts = {"Connection reset by peer", "ConnectionResetError", "Connection aborted"},
     .flags = CAUSE_CASCADE,
     .cause = "a peer closed its connection: it had exited or failed",
     .tip =
         "rerun with --log-dir=DIR and look for the earliest error in the logs of the other ranks"},
    {.id = "broken-pipe",
     .texts = {"Broken pipe", "BrokenPipeError"},
     .flags = CAUSE_CASCADE,
     .cause = "the process at the other end of a pipe or connection has exited",
     .tip =
         "rerun with --log-dir=DIR and look for the earliest error in the logs of the other ranks"},
    {.id = "command-not-found",
     .texts = {"not found"},
     .code = 127,
     .cause = "a command of the script was not found on this node",
     .tip = "load the environment module of the command, or set PATH"},
    {.id = "permission",
     .texts = {"Permission denied"},
     .cause = "the user may not execute or open a file",
     .tip = "check owner and mode of the file named above; a script needs 'chmod +x'"},
    {.id = "tokenizers-fork",
     .texts = {"Disabling parallelism to avoid deadlocks"},
     .also = {"huggingface/tokenizers"},
     .cause = "a process was forked while the threads of Hugging Face's tokenizers ran; a deadlock "
              "is possible",
     .tip = "set TOKENIZERS_PARALLELISM=false, or load the tokenizer in the data set"},
    /* ---- signals ---- */
    {.id = "sigkill",
     .signal = SIGKILL,
     .flags = CAUSE_SENDER,
     .cause =
         "a process other than ddrun sent SIGKILL; ddrun found no OOM kill in the worker's cgroup",
     .tip =
         "common senders are the scheduler at a limit and administrators; 'dmesg -T' on the node "
         "shows OOM kills that ddrun cannot see"},
    {.id = "sigterm",
     .signal = SIGTERM,
     .flags = CAUSE_SENDER,
     .cause = "a process other than ddrun sent SIGTERM",
     .tip = "check the scheduler's record of the job for a time limit, preemption or scancel"},
    {.id = "sigint",
     .signal = SIGINT,
     .flags = CAUSE_SENDER,
     .cause = "a process other than ddrun sent SIGINT"},
    {.id = "sighup",
     .signal = SIGHUP,
     .flags = CAUSE_SENDER,
     .cause = "another process or the kernel sent SIGHUP, as when a terminal is closed"},
    {.id = "sigusr1",
     .signal = SIGUSR1,
     .flags = CAUSE_SENDER,
     .cause = "the worker received SIGUSR1, which it does not handle",
     .tip = TIP_FOR_USER_SIGNAL},
    {.id = "sigusr2",
     .signal = SIGUSR2,
     .flags = CAUSE_SENDER,
     .cause = "the worker received SIGUSR2, which it does not handle",
     .tip = TIP_FOR_USER_SIGNAL},
    {.id = "sigpipe",
     .signal = SIGPIPE,
     .cause = "the worker wrote to a pipe or a socket whose other end is closed, as in "
              "'ddrun ... | head'"},
    {.id = "sigxcpu",
     .signal = SIGXCPU,
     .cause = "the worker has used up its limit of CPU time",
     .tip = "'ulimit -t' shows the limit"},
    {.id = "sigsegv",
     .texts = {"Fatal Python error: Segmentation fault"},
     .flags = CAUSE_ANYWHERE,
     .cause = "native code accessed an invalid address",
     .tip = "the last lines show the Python stack; 'ulimit -c unlimited' allows a core dump with "
            "the native one"},
    {.id = "sigsegv",
     .signal = SIGSEGV,
     .cause = "native code accessed an invalid address",
     .tip = "rerun with -x PYTHONFAULTHANDLER=1, or 'ulimit -c unlimited' for a core dump"},
    {.id = "sigabrt",
     .signal = SIGABRT,
     .cause = "native code called abort(), as a failed assertion does",
     .tip = "the last lines of the worker may show why; 'ulimit -c unlimited' keeps a core dump"},
    {.id = "sigbus",
     .signal = SIGBUS,
     .cause = "an access to mapped memory failed, often because a file system is full",
     .tip = "check 'df -h /dev/shm'"},
    {.id = "sigill",
     .signal = SIGILL,
     .cause = "native code executed an invalid instruction, often because it was built for another "
              "CPU",
     .tip = "build the program and its libraries for the oldest CPU of the cluster"},
    {.id = "sigfpe",
     .signal = SIGFPE,
     .cause = "an arithmetic error in native code, usually an integer division by zero",
     .tip = "rerun with -x PYTHONFAULTHANDLER=1, or 'ulimit -c unlimited' for a core dump"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]), TEXTS = 4, ALSO = 2 };

static bool has_text(const char *text, const char *part)
{
    return text != NULL && strstr(text, part) != NULL;
}

static bool names_one(const struct failure_cause *c, const char *text)
{
    for (int i = 0; i < TEXTS && c->texts[i] != NULL; i++)
        if (has_text(text, c->texts[i]))
            return true;
    return false;
}

static bool names_also(const struct failure_cause *c, const char *text)
{
    for (int i = 0; i < ALSO && c->also[i] != NULL; i++)
        if (has_text(text, c->also[i]))
            return true;
    return false;
}

/* Return the signal that ended the worker, or the program that its shell ran; 0: none. */
static int signal_of(const struct report_exit *e)
{
    return e->signal > 0 ? e->signal : e->code > 128 ? e->code - 128 : 0;
}

/* Return the text that explains the end: the message of the error file, ddrun's own reason, or the
 * output from the last exception on; NULL: there is none, or a signal of another process ended the
 * worker after the exception. */
static const char *message_of(const struct report_exit *e)
{
    size_t len;
    const bool outside = e->signal == SIGKILL || e->signal == SIGTERM || e->signal == SIGINT ||
                         e->signal == SIGHUP || e->signal == SIGUSR1 || e->signal == SIGUSR2;
    const bool reported = e->error != NULL && e->error[0] != '\0';
    return outside && !reported ? NULL : report_exception(e, &len);
}

static bool row_matches(const struct failure_cause *c, const struct report_exit *e,
                        const char *message)
{
    /* an exception explains more than a crash in the exit that follows it */
    if (c->texts[0] == NULL)
        return c->signal == signal_of(e) && message_of(e) == NULL;
    if (c->code != 0 && c->code != e->code)
        return false;
    if (c->also[0] != NULL && !names_also(c, e->tail) && !names_also(c, e->trace) &&
        !names_also(c, e->error))
        return false;
    return names_one(c, message);
}

static bool is_abort(const struct failure_cause *c)
{
    return c != NULL && strcmp(c->id, "mpi-abort") == 0;
}

static const struct failure_cause *first_row(const struct report_exit *e, const char *text,
                                             int flags)
{
    for (int i = 0; i < ROWS; i++)
        if ((rows[i].flags & flags) == flags && row_matches(&rows[i], e, text))
            return &rows[i];
    return NULL;
}

/* Return the row of the error after which the program called MPI_Abort; NULL: it is not known. The
 * error is an exception, or lines that only this error prints. */
static const struct failure_cause *row_before_abort(const struct report_exit *e)
{
    size_t len;
    struct report_exit said = *e;
    said.error = "";
    const char *exception = report_exception(&said, &len);
    for (int i = 0; i < ROWS; i++) {
        const bool anywhere = (rows[i].flags & CAUSE_ANYWHERE) != 0;
        const char *text = anywhere ? e->tail : exception;
        if (text != NULL && rows[i].texts[0] != NULL && !is_abort(&rows[i]) &&
            row_matches(&rows[i], e, text))
            return &rows[i];
    }
    return NULL;
}

/* Return the row of a crash, which is never the consequence of a peer's failure. Only a
 * CAUSE_ANYWHERE text explains a crash better than the signal. */
static const struct failure_cause *row_of_crash(const struct report_exit *e)
{
    const struct failure_cause *c = first_row(e, e->tail, CAUSE_ANYWHERE);
    return c != NULL && (c->flags & CAUSE_CASCADE) == 0 ? c : first_row(e, "", 0);
}

static const struct failure_cause *find_row(const struct report_exit *e)
{
    const char *message = message_of(e);
    const struct failure_cause *c;
    if (message == NULL && report_has_crashed(e))
        return row_of_crash(e);
    if (message == NULL) {
        c = first_row(e, "", CAUSE_SENDER); /* a signal of another process suffices as cause */
        return c != NULL ? c : first_row(e, e->tail, 0);
    }
    if (is_abort(c = first_row(e, message, 0))) {
        const struct failure_cause *before = row_before_abort(e);
        return before != NULL ? before : c;
    }
    if (c == NULL && (c = first_row(e, e->tail, CAUSE_ANYWHERE)) == NULL)
        c = first_row(e, e->trace, CAUSE_ANYWHERE);
    return c;
}

const struct failure_cause *failure_cause_find(const struct report_exit *e)
{
    const bool killed = e->oom && signal_of(e) == SIGKILL;
    const struct failure_cause *found = killed ? &killed_by_oom : find_row(e);
    const bool may_be_oom = found == NULL || (found->flags & CAUSE_MAY_BE_OOM) != 0;
    return e->oom && !killed && may_be_oom ? &child_killed_by_oom : found;
}

bool failure_is_cascade(const struct report_exit *e)
{
    const struct failure_cause *c = failure_cause_find(e);
    return c != NULL && (c->flags & CAUSE_CASCADE) != 0;
}

bool failure_is_hang(const struct report_exit *e)
{
    const struct failure_cause *c = failure_cause_find(e);
    return c != NULL && (c->flags & CAUSE_HANG) != 0;
}

bool failure_is_job_hung(const char *message)
{
    return message != NULL && strncmp(message, FAILURE_JOB_HUNG, strlen(FAILURE_JOB_HUNG)) == 0;
}

const struct failure_cause *failure_cause_stuck_loader(void)
{
    return &stuck_loader;
}

const struct failure_cause *failure_cause_early_exit(void)
{
    return &early_exit;
}

const struct failure_cause *failure_cause_hung_in_mpi(void)
{
    return &hung_in_mpi;
}

const struct failure_cause *failure_cause_row(unsigned i)
{
    return i < ROWS ? &rows[i] : NULL;
}
