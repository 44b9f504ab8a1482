"""A worker for test_stacks.py: every rank waits in a function of its own; rank FAILS fails once all others wait.

stacks.py PLACE FAILS [RANK:FUNCTION ...]
"""

import ctypes
import fcntl
import mmap
import multiprocessing
import os
import platform
import signal
import struct
import sys
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE, FAILS = sys.argv[1], int(sys.argv[2])


def ready(who="ready"):
    with open(os.path.join(PLACE, f"{who}-{RANK}"), "w") as f:
        f.write(str(os.getpid()))


def sleeps(rank, who="ready"):
    """True if that rank has left ready() and sleeps: in ready() it runs, or is in state D."""
    try:
        with open(os.path.join(PLACE, f"{who}-{rank}")) as f, open(f"/proc/{int(f.read())}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"
    except (FileNotFoundError, ValueError):
        return False


def train_step():
    ready()
    time.sleep(1000)


def read_data():
    ready()
    time.sleep(1000)


def read_sample():
    ready("child")
    time.sleep(1000)


def wait_for_child(method="fork"):
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    context.Process(target=read_sample, daemon=True).start()
    while not sleeps(RANK, "child"):
        time.sleep(0.05)
    ready()
    answers.get()


def wait_for_spawned():
    wait_for_child("spawn")


def wait_for_forkserver():
    wait_for_child("forkserver")


class Samples:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        read_sample()


def load_data():
    from torch.utils.data import DataLoader
    batches = iter(DataLoader(Samples(), num_workers=2))
    while not sleeps(RANK, "child"):
        time.sleep(0.05)
    ready()
    next(batches)


def unreadable():
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    train_step()


def wait_in_kernel():
    """Wait in state D, as a process that has called vfork() does until its child ends."""
    libc = ctypes.CDLL(None)
    clone, vfork = {"x86_64": 56, "aarch64": 220}[platform.machine()], 0x4000
    if libc.syscall(clone, vfork | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        ready()
        time.sleep(1000)


def without_page():
    """Wait with a line table in a page that nobody provides: whoever reads it blocks."""
    number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
    page = mmap.mmap(-1, mmap.PAGESIZE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    fault = ctypes.CDLL(None, use_errno=True).syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(fault, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))  # UFFDIO_API
    fcntl.ioctl(fault, 0xC020AA00, struct.pack("QQQQ", at, mmap.PAGESIZE, 1, 0))  # UFFDIO_REGISTER
    code = train_step.__code__
    words = (ctypes.c_uint64 * (sys.getsizeof(code) // 8)).from_address(id(code))
    words[list(words).index(id(code.co_linetable))] = at
    train_step()


def fail():
    while not all(sleeps(rank) for rank in range(SIZE) if rank != RANK):
        time.sleep(0.05)
    if os.path.exists(os.path.join(PLACE, "wait")):  # for the test to stop a rank first
        ready()
        while os.path.exists(os.path.join(PLACE, "wait")):
            time.sleep(0.05)
    raise ValueError("boom")


if __name__ == "__main__":
    what = dict(a.split(":") for a in sys.argv[3:]).get(str(RANK), "train_step")
    fail() if RANK == FAILS else globals()[what]()
