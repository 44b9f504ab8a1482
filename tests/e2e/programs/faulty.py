"""faulty.py FAULT RANK: a job of PyTorch and gloo, in which one rank fails in the way that FAULT names. It prints 'ready' first.

GLOO_TIMEOUT sets the timeout of operations, in seconds; FULL a directory of a small file system."""
import datetime
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    """Numbers; the process that loads item 10 does something else."""

    def __init__(self, instead):
        self.instead = instead

    def __len__(self):
        return 100

    def __getitem__(self, i):
        if i == 10:
            self.instead()
        return float(i)


def loader(instead):
    # Lists, not tensors: a tensor that is fetched from a dead process raises a second exception, which PyTorch's handler of
    # SIGCHLD can interrupt while it is printed, so that the output names neither.
    for _ in DataLoader(Data(instead), num_workers=2, collate_fn=list):
        pass


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def lock():
    """Wait for a lock that nobody releases, as a process does that was forked while a thread held it."""
    taken = threading.Lock()
    taken.acquire()  # pylint: disable=consider-using-with
    taken.acquire()  # pylint: disable=consider-using-with


def full():
    """Write to a full file system: $FULL is a directory of a small one."""
    with open(os.environ.get("FULL", "/dev") + "/full", "wb", buffering=0) as f:
        while True:
            f.write(bytes(1 << 20))


def listen():
    """Listen on a port that is in use."""
    first = socket.create_server(("127.0.0.1", 0))
    socket.create_server(first.getsockname())


def boom():
    raise ValueError("boom")


def module():
    import nosuchmodule_of_ours  # noqa: F401  pylint: disable=import-error,import-outside-toplevel,unused-import


def memory():
    x = []
    while True:
        x.append(bytearray(1 << 20))


def gather():
    """Call another collective than the other ranks."""
    t = torch.ones(4)
    dist.all_gather([torch.empty(4) for _ in range(dist.get_world_size())], t)


def broadcast():
    dist.broadcast(torch.ones(4), 0)


FAULTS = {
    "exception": boom,
    "loader": lambda: loader(kill),
    "stuck-loader": lambda: loader(lock),
    "kill": kill,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(600),
    "gather": gather,
    "broadcast": broadcast,
    "full": full,
    "port": listen,
    "module": module,
    "memory": memory, "early": lambda: os._exit(0),  # pylint: disable=protected-access
}


def main():
    fault, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    t = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(t)
    if "GLOO_TIMEOUT" in os.environ:  # only from now on: a start may take long
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=float(os.environ["GLOO_TIMEOUT"])))
    if dist.get_rank() == 0:
        print("ready", flush=True)
    if dist.get_rank() == rank:
        FAULTS[fault]()
    while True:
        dist.all_reduce(t)


try:
    main()
except Exception:  # pylint: disable=broad-exception-caught
    if os.environ["RANK"] != sys.argv[2]:
        raise  # as any program; it ends later than the rank that failed first
    # gloo's thread may abort a process whose interpreter is ending (see train_torch.py), so that the exit code would vary.
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(1)
