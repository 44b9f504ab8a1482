/* report: well-known causes, each recognized by a message as programs write it, and the culprit. */
#include "report/causes.h"
#include "report/report.h"
#include "report/report_lines_inner.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)

/* The end of a traceback: with a process group, PyTorch labels its lines. */
#define TRACE                                                                                      \
    "Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\n    main()\n"
#define TRACE_3                                                                                    \
    "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 8, in "       \
    "<module>\n[rank3]:     main()\n[rank3]: "
/* Harmless lines of a healthy job. */
#define NOISE                                                                                      \
    "[W1123 07:13:01.123 socket.cpp:764] [c10d] Connection reset by peer, retrying\n"              \
    "WARNING: No module named 'apex', using native AdamW\nstep 100 loss 2.31\n"

/* What Open MPI prints. */
#define ABORT                                                                                      \
    "\n-----\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 3.\n" \
    "\nNOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n-----\n"

static const struct {
    const char *id;
    struct report_exit e;
} recorded[] = {
    {"oom-killer", {.signal = SIGKILL, .code = 137, .oom = true}},
    {"oom-killer",
     {.code = 137, .oom = true, .tail = "train.sh: line 3: 4711 Killed python train.py"}},
    {"oom-killer-child",
     {.code = 1,
      .oom = true,
      .tail = TRACE "RuntimeError: DataLoader worker (pid 24460) is killed by signal: Killed. "}},
    {"hang", {.signal = SIGABRT, .code = 134, .error = "hung: no output for 60 s"}},
    {"cuda-out-of-memory",
     {.code = 1,
      .tail = TRACE_3
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total capacity of "
      "79.11 GiB of which 1.42 GiB is free."}},
    {"cuda-out-of-memory",
     {.code = 1,
      .tail = TRACE "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB"}},
    {"cuda-out-of-memory", {.code = 1, .error = "RuntimeError: CUDA error: out of memory"}},
    {"hip-out-of-memory",
     {.code = 1,
      .tail = TRACE
      "torch.OutOfMemoryErr: x\nRuntimeError: HIP out of memory. Tried to allocate 20.00 GiB"}},
    {"jax-out-of-memory",
     {.code = 1,
      .tail = TRACE
      "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."}},
    {"jax-out-of-memory",
     {.code = 1,
      .tail = TRACE
      "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node x}} OOM when allocating "
      "tensor with shape[64,2048] and type float on /job:localhost"}},
    {"gpu-ecc-error",
     {.code = 1, .tail = TRACE "RuntimeError: CUDA error: uncorrectable ECC error encountered"}},
    {"gpu-lost",
     {.code = 1,
      .tail = TRACE "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"}},
    {"gpu-lost",
     {.code = 15,
      .tail =
          "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.  Reboot the system to recover this GPU"}},
    {"gpu-xid",
     {.code = 1, .tail = "NVRM: Xid (PCI:0000:4e:00): 31, pid=4711, name=python, Ch 00000008"}},
    {"nvlink-error",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"}},
    {"cuda-device-assert",
     {.code = 1,
      .tail =
          "Assertion `srcIndex < srcSelectDimSize` failed.\n" TRACE
          "torch.AcceleratorError: CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'"}},
    {"cuda-illegal-access",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was "
          "encountered\nException raised from c10_cuda_check_implementation"}},
    {"cuda-launch-failure",
     {.code = 1, .tail = TRACE "RuntimeError: CUDA error: unspecified launch failure"}},
    {"cuda-driver-too-old",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"}},
    {"cuda-driver-too-old",
     {.code = 1,
      .tail = "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"}},
    {"cuda-no-kernel-image",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: CUDA error: no kernel image is available for execution on the device"}},
    {"torch-without-cuda",
     {.code = 1, .tail = TRACE "AssertionError: Torch not compiled with CUDA enabled"}},
    {"cuda-no-device",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
      "driver from http://www.nvidia.com/Download/index.aspx"}},
    {"cuda-no-device", {.code = 1, .tail = TRACE "RuntimeError: No CUDA GPUs are available"}},
    {"cuda-no-device",
     {.code = 1, .tail = TRACE "RuntimeError: CUDA error: no CUDA-capable device is detected"}},
    {"cuda-invalid-device",
     {.code = 1,
      .tail = TRACE
      "torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough "
      "GPUs?"}},
    {"cudnn", {.code = 1, .tail = TRACE "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"}},
    {"cublas",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"}},
    {"nccl-timeout",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
          "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 "
          "milliseconds before timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'"}},
    {"nccl-timeout",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long> >) + 0x247\n"}},
    {"nccl-remote-error",
     {.code = 1,
      .tail = TRACE_3
      "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a "
      "network error, NCCL version 2.21.5\n[rank3]: ncclRemoteError: A call failed possibly due to a network error or "
      "a remote process exiting prematurely.\n[rank3]: Last error:\n[rank3]: socketProgressOpt: Call to recv from "
      "172.16.0.1<33759> failed : Connection reset by peer"}},
    {"nccl-remote-error",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version "
      "2.14.3\nncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer "
      "node7<50260>"}},
    {"nccl-network",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "NCCL WARN NET/IB : Got completion from peer 11.214.147.122<39138> with error 12, opcode 0, len 0, vendor err 129"}},
    {"nccl-version",
     {.code = 1, .tail = "NCCL version mismatch: rank 0 has 22105, rank 1 has 21803"}},
    {"nccl-duplicate-gpu",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN "
      "for details), NCCL version 2.27.3\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
      "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 4e000"}},
    {"nccl-system-error",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled system error (run with "
      "NCCL_DEBUG=INFO for details), NCCL version 2.18.5\nncclSystemError: System call (e.g. socket, malloc) or "
      "external library call failed or device error."}},
    {"nccl-cuda-error",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled cuda error (run with "
      "NCCL_DEBUG=INFO for details), NCCL version 2.18.5"}},
    {"nccl-error",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version "
      "2.17.1"}},
    {"shm-full",
     {.code = 1,
      .tail =
          "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" TRACE
          "RuntimeError: DataLoader worker (pid 4720) is killed by signal: Bus error. "}},
    {"shm-full",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: unable to write to file </torch_4711_123_0>: No space left on device (28)"}},
    {"dataloader-worker-killed",
     {.code = 1,
      .tail = TRACE "RuntimeError: DataLoader worker (pid(s) 24460) exited unexpectedly"}},
    {"dataloader-worker-killed",
     {.code = 1,
      .tail = TRACE "RuntimeError: DataLoader worker (pid 24460) is killed by signal: Killed. "}},
    {"dataloader-worker-lost",
     {.code = 1,
      .tail =
          "[rank2]:   File \"/usr/lib/python3.11/multiprocessing/resource_sharer.py\", line 86, in get_connection\n"
          "[rank2]:     c = Client(address, authkey=process.current_process().authkey)\n"
          "[rank2]: ConnectionResetError: [Errno 104] Connection reset by peer"}},
    {"fork-of-cuda",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
      "'spawn' start method"}},
    {"pickle",
     {.code = 1,
      .tail = TRACE
      "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>: attribute lookup failed"}},
    {"pickle",
     {.code = 1, .tail = TRACE "AttributeError: Can't get local object 'main.<locals>.collate'"}},
    {"disk-full",
     {.code = 1,
      .tail = TRACE "OSError: [Errno 28] No space left on device: '/scratch/ckpt/17.pt'"}},
    {"disk-full",
     {.code = 1,
      .tail =
          "OSError: [Errno 28] No space left on device\n\nDuring handling of the above exception, another exception occurred:\n" TRACE
          "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"}},
    {"quota",
     {.code = 1, .tail = TRACE "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt'"}},
    {"read-only",
     {.code = 1, .tail = TRACE "OSError: [Errno 30] Read-only file system: '/data/x'"}},
    {"lustre-eviction",
     {.code = 1,
      .tail = TRACE
      "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lus/data/shard-7.tar'"}},
    {"lustre-eviction",
     {.code = 1,
      .tail =
          "LustreError: 167-0: scratch-OST0003-osc: This client was evicted by scratch-OST0003; in progress operations using "
          "this service will fail."}},
    {"fuse-lost",
     {.code = 1,
      .tail = TRACE "OSError: [Errno 107] Transport endpoint is not connected: '/env/x'"}},
    {"stale-handle", {.code = 1, .tail = TRACE "OSError: [Errno 116] Stale file handle"}},
    {"io-error", {.code = 1, .tail = TRACE "OSError: [Errno 5] Input/output error"}},
    {"too-many-files",
     {.code = 1, .tail = TRACE "OSError: [Errno 24] Too many open files: '/data/shard-0001.tar'"}},
    {"missing-module", {.code = 1, .error = "ModuleNotFoundError: No module named 'numpyy'"}},
    {"missing-module", {.code = 1, .tail = "/usr/bin/python3: No module named train"}},
    {"glibc-version",
     {.code = 1,
      .tail =
          "python: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /opt/x/libfoo.so)"}},
    {"missing-library",
     {.code = 127,
      .tail =
          "./solver: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file or "
          "directory"}},
    {"missing-library",
     {.code = 1,
      .tail = TRACE
      "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory"}},
    {"undefined-symbol",
     {.code = 1,
      .tail = TRACE
      "ImportError: /opt/x.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation"}},
    {"relative-import",
     {.code = 1,
      .tail = TRACE "ImportError: attempted relative import with no known parent package"}},
    {"import-error",
     {.code = 1, .tail = TRACE "ImportError: cannot import name 'Trainer' from 'lib'"}},
    {"syntax-error",
     {.code = 1,
      .tail = "  File \"train.py\", line 3\n    def\n       ^\nSyntaxError: invalid syntax"}},
    {"debugger", {.code = 1, .tail = TRACE "bdb.BdbQuit"}},
    {"interrupted", {.code = 1, .tail = TRACE "KeyboardInterrupt"}},
    {"sigterm-exception",
     {.code = 1, .tail = TRACE "lightning.pytorch.utilities.exceptions.SIGTERMException"}},
    {"host-memory",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
      "tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"}},
    {"host-memory",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"}},
    {"too-many-processes", {.code = 1, .tail = TRACE "RuntimeError: can't start new thread"}},
    {"too-many-processes",
     {.code = 1, .tail = TRACE "BlockingIOError: [Errno 11] Resource temporarily unavailable"}},
    {"nan", {.code = 1, .tail = TRACE "AssertionError: loss is nan at step 812"}},
    {"nan-in-backward",
     {.code = 1,
      .tail = TRACE
      "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."}},
    {"port-in-use", {.code = 1, .tail = TRACE "OSError: [Errno 98] Address already in use"}},
    {"port-in-use",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
      "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"}},
    {"gloo-peer-lost",
     {.code = 1,
      .tail = TRACE_3
      "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
      "[127.0.0.1]:53125. This is typically caused by a remote worker crashing."}},
    {"gloo-peer-lost",
     {.code = 1,
      .tail = TRACE_3
      "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
      "[127.0.0.1]:11473: Connection reset by peer. This is typically caused by a remote worker hanging"}},
    {"gloo-timeout",
     {.code = 1,
      .tail = TRACE_3
      "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out "
      "waiting 6000ms for recv operation to complete"}},
    {"gloo-timeout",
     {.code = 1,
      .tail = TRACE_3
      "RuntimeError: [/gloo/transport/tcp/pair.cc:598] Application timeout caused pair closure"}},
    {"barrier-timeout",
     {.code = 1, .tail = TRACE "RuntimeError: Rank 1 failed to pass monitoredBarrier in 6000 ms"}},
    {"store-timeout",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0/1"}},
    {"store-lost",
     {.code = 1,
      .tail = TRACE
      "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
      "server shutdown or crash?"}},
    {"jax-peer-lost",
     {.signal = SIGABRT,
      .code = 134,
      .tail =
          "F0929 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed service detected fatal "
          "errors. This most likely indicates that another task died; see the other task logs for more details."}},
    {"jax-barrier-timeout",
     {.code = 1,
      .tail = TRACE
      "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect."}},
    {"server-unreachable",
     {.code = 1,
      .tail = TRACE
      "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
      "exceeded with url: /api/models/gpt2 (Caused by NameResolutionError(\\\"Failed to resolve 'huggingface.co' ([Errno -3] "
      "Temporary failure in name resolution)\\\"))\"), '(Request ID: 1)')"}},
    {"tensorflow-peer-lost",
     {.code = 1,
      .tail = TRACE
      "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to connect to all "
      "addresses"}},
    {"horovod-shut-down",
     {.code = 1,
      .tail = TRACE
      "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception"}},
    {"mpi-peer-lost",
     {.code = 15,
      .tail =
          "internal_Allreduce(70).......: MPI_Allreduce failed\nCommunication error with rank 1"}},
    {"pmix-missing",
     {.code = 1,
      .tail = "[node1:00378] OPAL ERROR: Unreachable in file ext3x_client.c at line 112\n"
              "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n"
              "*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
              "***    and potentially your MPI job)"}},
    {"mpi-abort",
     {.code = 3,
      .tail = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 3."}},
    {"mpi-abort",
     {.code = 3, .tail = "application called MPI_Abort(MPI_COMM_WORLD, 3) - process 2"}},
    {"mpi-abort",
     {.code = 3,
      .error = "it called MPI_Abort with code 3",
      .tail = TRACE "ValueError: boom" ABORT}},
    {"mpi-abort", {.code = 3, .error = "it called MPI_Abort with code 3", .tail = NOISE}},
    /* the lines above the abort name the error */
    {"disk-full",
     {.code = 1,
      .error = "it called MPI_Abort with code 1",
      .tail = "heat: cannot write the result: No space left on device" ABORT}},
    {"missing-module",
     {.code = 1,
      .error = "it called MPI_Abort with code 1",
      .tail = TRACE "ModuleNotFoundError: No module named 'numpyy'" ABORT}},
    {"host-unreachable",
     {.code = 1,
      .error = "it called MPI_Abort with code 1",
      .tail = "heat: connect: No route to host" ABORT}},
    {"mpi-peer-lost",
     {.code = 15,
      .error = "it called MPI_Abort with code 15",
      .tail = "internal_Allreduce(70).......: MPI_Allreduce failed\nCommunication error with rank 1"
              "\napplication called MPI_Abort(MPI_COMM_WORLD, 15) - process 0"}},
    {"host-unknown",
     {.code = 1, .tail = TRACE "socket.gaierror: [Errno -2] Name or service not known"}},
    {"host-unreachable", {.code = 1, .tail = TRACE "OSError: [Errno 113] No route to host"}},
    {"connection-refused",
     {.code = 1, .tail = TRACE "ConnectionRefusedError: [Errno 111] Connection refused"}},
    {"connection-reset",
     {.code = 1, .tail = TRACE "ConnectionResetError: [Errno 104] Connection reset by peer"}},
    {"broken-pipe", {.code = 1, .tail = TRACE "BrokenPipeError: [Errno 32] Broken pipe"}},
    {"command-not-found", {.code = 127, .tail = "train.sh: line 3: nvcc: command not found"}},
    {"command-not-found", {.code = 127, .tail = "train.sh: 3: nvcc: not found"}},
    {"permission", {.code = 126, .tail = "sh: 1: ./train.sh: Permission denied"}},
    {"permission",
     {.code = 1, .tail = TRACE "PermissionError: [Errno 13] Permission denied: '/data/x'"}},
    {"tokenizers-fork",
     {.code = 3,
      .tail =
          "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling "
          "parallelism to avoid deadlocks...\n"}},
    {"sigkill", {.signal = SIGKILL, .code = 137, .tail = NOISE}},
    {"sigkill",
     {.signal = SIGKILL,
      .code = 137,
      .tail = TRACE "ConnectionResetError: [Errno 104] Connection reset by peer\nretrying"}},
    {"hang", {.signal = SIGKILL, .code = 137, .error = "hung: no output for 60 s"}},
    {"sigkill", {.code = 137, .tail = "train.sh: line 3: 4711 Killed python train.py"}},
    {"sigterm", {.signal = SIGTERM, .code = 143}},
    {"sigint", {.signal = SIGINT, .code = 130}},
    {"sighup", {.signal = SIGHUP, .code = 129}},
    {"sigusr1",
     {.signal = SIGUSR1,
      .code = 138,
      .tail = "Traceback (most recent call last):\nKeyError: 'handled'"}},
    {"sigusr2", {.signal = SIGUSR2, .code = 140}},
    {"sigpipe", {.code = 141, .tail = "y\ny\ny"}},
    {"sigxcpu", {.signal = SIGXCPU, .code = 152}},
    {"sigsegv", {.signal = SIGSEGV, .code = 139}},
    {"sigsegv", {.code = 139, .tail = "Segmentation fault (core dumped)"}},
    {"sigsegv",
     {.signal = SIGSEGV,
      .code = 139,
      .tail = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call "
              "first):\n  File \"a.py\", line 3 in <module>"}},
    /* a crash is not explained by an exception that was logged, and handled */
    {"sigsegv",
     {.signal = SIGSEGV,
      .code = 139,
      .tail = TRACE "ConnectionResetError: [Errno 104] Connection reset by peer\n\nuploaded"}},
    {"sigabrt",
     {.signal = SIGABRT, .code = 134, .tail = "a.out: a.c:3: main: Assertion `0' failed."}},
    {"sigbus", {.signal = SIGBUS, .code = 135}},
    {"sigill", {.signal = SIGILL, .code = 132}},
    {"sigfpe", {.signal = SIGFPE, .code = 136}},
    /* an OOM kill somewhere in the cgroup explains less than the error itself */
    {"disk-full",
     {.code = 1, .oom = true, .tail = TRACE "OSError: [Errno 28] No space left on device"}},
    {"oom-killer-child",
     {.code = 1,
      .oom = true,
      .tail = TRACE "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."}},
    /* no row: harmless lines before an exception of the program explain nothing */
    {NULL, {.code = 1, .tail = NOISE TRACE "ValueError: boom"}},
    {NULL, {.code = 1, .tail = NOISE TRACE_3 "ValueError: boom\n"}},
    {NULL, {.code = 1, .error = "ValueError: boom", .tail = NOISE}},
    {NULL,
     {.signal = SIGABRT,
      .code = 134,
      .tail = TRACE_3 "ValueError: boom\nterminate called without an active exception"}},
    /* other programs time out and lose connections, too */
    {NULL, {.code = 1, .tail = TRACE "RuntimeError: 504 DEADLINE_EXCEEDED while reading gs://a"}},
    {NULL, {.code = 1, .tail = TRACE "RuntimeError: Timed out waiting for the lock file a.lock"}},
    {NULL,
     {.code = 1,
      .tail = TRACE "google.api_core.exceptions.RetryError: failed to connect to all addresses"}},
    {NULL, {.code = 3}},
    {NULL, {.code = 255, .tail = "done\n"}},
};
enum { RECORDED = sizeof(recorded) / sizeof(recorded[0]) };

static void each_recorded_message_has_its_cause(void **state)
{
    (void)state;
    for (int i = 0; i < RECORDED; i++) {
        const struct failure_cause *c = failure_cause_find(&recorded[i].e);
        if (recorded[i].id != NULL && (c == NULL || strcmp(c->id, recorded[i].id) != 0))
            fail_msg("%s: %s", recorded[i].id, c != NULL ? c->id : "no cause");
        if (recorded[i].id == NULL && c != NULL)
            fail_msg("message %d: %s", i, c->id);
    }
}

static void each_row_is_tested_by_a_recorded_message(void **state)
{
    (void)state;
    const struct failure_cause *c;
    for (unsigned i = 0; (c = failure_cause_row(i)) != NULL; i++) {
        int found = 0;
        for (int k = 0; k < RECORDED; k++)
            found += recorded[k].id != NULL && strcmp(recorded[k].id, c->id) == 0;
        if (found == 0)
            fail_msg("%s has no recorded message", c->id);
        assert_true(strlen(c->cause) <= 120 && c->cause[strlen(c->cause) - 1] != '.');
        assert_true(c->tip == NULL || (strlen(c->tip) <= 140 && c->tip[strlen(c->tip) - 1] != '.'));
    }
}

/* ---- the culprit ---- */

#define GLOO "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:5"

static struct report_exit worker(int rank, uint64_t at, const char *tail)
{
    return (struct report_exit){.rank = rank,
                                .pid = 4000 + rank,
                                .code = 1,
                                .at_ns = at,
                                .node = rank < 2 ? "node1" : "node2",
                                .tail = tail};
}

/* Return the report of these failures; the caller frees it. */
static char *reported(const struct report_exit *e, int n)
{
    struct report *r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(REPORT_TEXT_MAX);
    assert_int_equal(report_new(&r, &(struct report_cfg){.job_id = "j", .nnodes = 2}), 0);
    report_round(r, 0, 4, S);
    for (int i = 0; i < n; i++)
        assert_int_equal(report_exit_add(r, &e[i], i == 0), 0);
    report_finish(r, "", 1, 9 * S);
    assert_int_equal(report_text(r, &out), 0);
    report_free(r);
    return dd_buf_steal(&out);
}

static void reports(const struct report_exit *e, int n, const char *sentence, const char *culprit)
{
    DD_AUTO(free) char *text = reported(e, n);
    if (strncmp(text, sentence, strlen(sentence)) != 0 || strstr(text, culprit) == NULL)
        fail_msg("%s", text);
}

static void first_failure_that_is_no_cascade_is_the_culprit(void **state)
{
    (void)state;
    const struct report_exit e[] = {worker(0, 2 * S, GLOO), worker(1, 2 * S + 1, GLOO),
                                    worker(2, 3 * S, "ValueError: boom")};
    reports(e, 3,
            "rank 2 on node2 failed: ValueError: boom (exit code 1)\n  culprit: rank 2 on node2, "
            "the first failure that does not follow from a lost or late peer (2 earlier ones do)\n",
            "  others: 2 failed earlier:\n    1.000 s earlier rank 0 on node1 failed");
    reports(
        &e[1], 2,
        "rank 2 on node2 failed: ValueError: boom (exit code 1)\n  culprit: rank 2 on "
        "node2, the first failure that does not follow from a lost or late peer (1 earlier one does)\n",
        "  others: 1 failed earlier:\n");
    reports(&e[2], 1, "rank 2",
            "  culprit: rank 2 on node2, the only rank that failed by itself\n");
}

static void cascades_after_the_first_failure_are_counted(void **state)
{
    (void)state;
    const struct report_exit e[] = {worker(2, 2 * S, "ValueError: boom"), worker(0, 3 * S, GLOO),
                                    worker(1, 4 * S, "KeyError: 1")};
    reports(
        e, 3, "rank 2 on node2 failed: ValueError: boom (exit code 1)\n",
        "  culprit: rank 2 on node2, the first of 3 ranks to fail; 1 of the other failures only "
        "follows from a lost or late peer\n");
}

static void reports_with(const struct report_ends *ends, int n, const struct report_exit *e,
                         const char *culprit, const char *cause)
{
    struct report *r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(REPORT_TEXT_MAX);
    assert_int_equal(report_new(&r, &(struct report_cfg){.job_id = "j", .nnodes = 2}), 0);
    report_round(r, 0, 4, S);
    assert_int_equal(report_exit_add(r, e, true), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(report_ends_add(r, &ends[i]), 0);
    report_finish(r, "", 1, 9 * S);
    assert_int_equal(report_text(r, &out), 0);
    report_free(r);
    if (strstr(dd_buf_str(&out), culprit) == NULL || strstr(dd_buf_str(&out), cause) == NULL)
        fail_msg("%s", dd_buf_str(&out));
}

static void ranks_that_fail_for_the_same_reason_are_counted(void **state)
{
    (void)state;
    const struct report_exit e[] = {worker(2, 2 * S, "ValueError: boom"),
                                    worker(0, 3 * S, "ValueError: boom"),
                                    worker(1, 3 * S, "ValueError: bang")};
    reports(e, 2, "rank 2 on node2",
            "culprit: rank 2 on node2, the first of 2 ranks to fail, all for the same reason\n");
    reports(e, 3, "rank 2 on node2", "culprit: rank 2 on node2, the first of 3 ranks to fail\n");
}

static void rank_that_exited_with_0_before_the_others_lost_a_peer_is_the_culprit(void **state)
{
    (void)state;
    const struct report_exit lost = worker(0, 5 * S, GLOO);
    const struct report_exit boom = worker(0, 5 * S, "ValueError: boom");
    const struct report_ends early = {
        .left = 1, .first_node = "node2", .first_rank = 3, .first_ns = 4 * S};
    const struct report_ends earlier[] = {
        early, {.left = 2, .first_node = "node1", .first_rank = 1, .first_ns = 3 * S}};
    const struct report_ends late = {
        .left = 1, .first_node = "node2", .first_rank = 3, .first_ns = 6 * S};
    const struct report_ends unknown = {.left = 1};
    reports_with(
        &early, 1, &lost,
        "culprit: rank 3 on node2, which had exited with 0 before the others lost a peer\n",
        "cause: a rank exited with 0 while others still needed it");
    reports_with(earlier, 2, &lost,
                 "culprit: rank 1 on node1, the first of 3 ranks that had exited with 0 before the "
                 "others lost a peer\n",
                 "cause: a rank exited with 0 ");
    reports_with(&late, 1, &lost, "culprit: unknown: rank 0 was the first to report", "gloo");
    reports_with(&unknown, 1, &lost, "culprit: unknown: rank 0 was the first to report", "gloo");
    reports_with(&early, 1, &boom, "culprit: rank 0 on node1, the only rank", "boom");
}

static void an_end_without_a_message_does_not_displace_a_cascade(void **state)
{
    (void)state;
    const char *const tails[] = {"", "KeyboardInterrupt", "x.SIGTERMException"};
    for (int i = 0; i < 3; i++) {
        const struct report_exit e[] = {worker(0, 2 * S, GLOO), worker(2, 3 * S, tails[i])};
        reports(
            e, 2, "rank 0 on node1 failed: RuntimeError",
            "  culprit: unknown: rank 0 was the first to report a lost or late peer, and no rank "
            "has reported an error of its own\n");
    }
}

static void a_signal_from_outside_blames_no_node(void **state)
{
    (void)state;
    struct report_exit e[] = {worker(0, 2 * S, GLOO), worker(2, 3 * S, NULL)};
    e[1].signal = SIGKILL;
    e[1].code = 137;
    reports(e, 2, "rank 2 on node2 was killed by signal 9 (SIGKILL)\n",
            "  culprit: the sender of the signal, not rank 2 or its node\n  cause: a process "
            "other than ddrun sent SIGKILL");
}

static void the_reason_of_a_usage_error_is_its_last_line(void **state)
{
    static const char usage[] =
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: -x\n";
    (void)state;
    struct report_exit e = worker(2, 3 * S, usage);
    e.code = 2;
    reports(&e, 1,
            "rank 2 on node2 failed: train.py: error: unrecognized arguments: -x (exit code 2)\n",
            "culprit: rank 2");
    e.code = 3;
    reports(&e, 1, "rank 2 on node2 failed (exit code 3)\n", "culprit: rank 2");
}

static void a_long_message_is_cut_after_a_word(void **state)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
    DD_AUTO(buf) struct dd_buf word = DD_BUF_INIT(1000);
    (void)state;
    assert_int_equal(report_put_line(&out, "check the logs of rank 1", 24, 16), 0);
    assert_string_equal(dd_buf_str(&out), "check the logs ...");
    assert_int_equal(report_put_line(&word, "0123456789", 10, 4), 0);
    assert_string_equal(dd_buf_str(&word), "0123...");
}

static void ranks_that_wait_for_a_hung_one_are_not_blamed(void **state)
{
    (void)state;
    struct report_exit e[] = {worker(0, 2 * S, NULL), worker(2, 3 * S, NULL)};
    e[0].error = e[1].error = "hung: no output for 60 s";
    reports(e, 2, "rank 0",
            "  culprit: unknown: several ranks showed no activity, rank 0 is one of them\n");
    reports(e, 1, "rank 0", "  culprit: rank 0 on node1, the only rank that hung\n");
}

static void a_hang_of_the_whole_job_names_no_rank(void **state)
{
    (void)state;
    struct report_exit e[] = {worker(0, 2 * S, NULL), worker(2, 3 * S, NULL),
                              worker(3, 4 * S, "ValueError: boom")};
    for (int i = 0; i < 2; i++) {
        e[i].error = "the job hung: no output for 60 s";
        e[i].signal = SIGABRT;
    }
    reports(
        e, 2,
        "the job hung: no output for 60 s\n"
        "  culprit: unknown: process states, stacks, flight records and NCCL do not show which rank the others waited for\n",
        "  workers: 2 hung\n  tip: ");
    /* the other one ended after the stop of the round */
    reports(e, 1, "the job hung: no output for 60 s\n",
            "  culprit: unknown: process states, stacks");
    reports(e, 3, "the job hung: no output for 60 s\n",
            "  workers: 2 hung, 1 failed later:\n"
            "    2.000 s later rank 3 on node2 failed: ValueError: boom (exit code 1)\n");
    e[0].tail = "Fatal Python error: Aborted";
    reports(e, 2, "the job hung: ",
            "  last lines of output of rank 0 on node1:\n    Fatal Python error: Aborted\n");
}

static void a_hung_job_without_memory_names_the_rank_that_the_kernel_killed(void **state)
{
    (void)state;
    struct report_exit e = worker(2, 2 * S, NULL);
    e.error = "the job hung: no output for 60 s";
    e.signal = SIGKILL;
    e.oom = true;
    reports(&e, 1, "rank 2 on node2 was killed by signal 9 (SIGKILL): killed by the kernel, out",
            "  local rank 0, pid 4002, ");
}

static void an_oom_kill_is_not_blamed_on_a_cascade_of_its_node(void **state)
{
    (void)state;
    struct report_exit e[] = {worker(2, 2 * S, NULL), worker(3, 3 * S, GLOO)};
    e[0].signal = SIGKILL;
    e[0].code = 137;
    e[0].oom = e[1].oom = true; /* the count of the node's cgroup */
    DD_AUTO(free) char *text = reported(e, 2);
    assert_non_null(strstr(text, "killed by the kernel, out of memory"));
    assert_null(strstr(text, "OOM killer killed a process in the job's cgroup on this node"));
}

static void text_that_would_control_the_terminal_is_replaced(void **state)
{
    (void)state;
    const struct report_exit e = worker(2, 2 * S,
                                        "ValueError: a\xe2\x80\xae"
                                        "b\xe2\x81\xa6"
                                        "c\xc2\x9b"
                                        "d\x1b[31me\xc2\xa0\xe2\x80\x93\n");
    DD_AUTO(free) char *text = reported(&e, 1);
    assert_non_null(strstr(text, "ValueError: a?b?c?de\xc2\xa0\xe2\x80\x93 (exit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_recorded_message_has_its_cause),
        cmocka_unit_test(each_row_is_tested_by_a_recorded_message),
        cmocka_unit_test(first_failure_that_is_no_cascade_is_the_culprit),
        cmocka_unit_test(ranks_that_fail_for_the_same_reason_are_counted),
        cmocka_unit_test(rank_that_exited_with_0_before_the_others_lost_a_peer_is_the_culprit),
        cmocka_unit_test(cascades_after_the_first_failure_are_counted),
        cmocka_unit_test(an_end_without_a_message_does_not_displace_a_cascade),
        cmocka_unit_test(a_signal_from_outside_blames_no_node),
        cmocka_unit_test(the_reason_of_a_usage_error_is_its_last_line),
        cmocka_unit_test(a_long_message_is_cut_after_a_word),
        cmocka_unit_test(ranks_that_wait_for_a_hung_one_are_not_blamed),
        cmocka_unit_test(a_hang_of_the_whole_job_names_no_rank),
        cmocka_unit_test(a_hung_job_without_memory_names_the_rank_that_the_kernel_killed),
        cmocka_unit_test(an_oom_kill_is_not_blamed_on_a_cascade_of_its_node),
        cmocka_unit_test(text_that_would_control_the_terminal_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
