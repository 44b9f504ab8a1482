"""Parallel tests (pytest -n N, pytest-xdist). Each process of tests has mounts of its own, with a /dev/shm that only its own
tests use, and a network of its own: its ports and names of abstract sockets (by which ddctl finds agents) cannot collide
with those of a test that runs at the same time."""

import ctypes
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "cluster"))

# Each process of tests imports all test modules. Pytest's changes to their asserts take most of that time, so they are kept.
# Programs that a test starts do not inherit this.
if "DDRUN_BUILD" in os.environ:
    sys.pycache_prefix = os.path.join(os.environ["DDRUN_BUILD"], "pycache")
    sys.dont_write_bytecode = False

# Test modules must not import these fixtures: pytest would start another cluster for each module that does, and stop it only
# at the end of the run.
from fixtures import (_can_cluster, _four_nodes, _pbs_nodes, _sge_nodes, cluster, new_cluster, pbs_cluster,  # noqa: F401
                      sge_cluster)

CLONE_NEWNS, CLONE_NEWNET, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x20000, 0x40000000, 0x2, 0x4, 0x4000, 0x40000
NETWORK = ("link set lo up", "link add eth0 type bridge", "addr add 192.0.2.1/24 dev eth0", "link set eth0 up")

# Tests that share a costly fixture stay in one process; every other test goes to the next free process.
TOGETHER = ("test_torchrun.py::test_the_same_happens_under_torchrun_and_ddrun", "test_store_torch.py", "test_store_random.py",
            "test_lib.py", "test_openpbs.py", "test_gridengine.py")

# Long tests start first, so that others run beside them.
LONG = ("test_slurm_recovery.py", "test_faults_", "test_torchrun", "test_torch_frameworks.py", "test_tensorflow.py", "test_store_random.py",
        "test_stalled.py")


def own_surroundings():
    """Unshare the mounts, and the network. (Open MPI does not use a loopback interface between nodes.)"""
    libc = ctypes.CDLL(None, use_errno=True)
    for call, *args in (
            (libc.unshare, CLONE_NEWNS | CLONE_NEWNET),
            (libc.mount, b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None),
            (libc.mount, b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV), b"mode=1777")):
        if call(*args) != 0:
            why = os.strerror(ctypes.get_errno())
            raise pytest.UsageError(f"tests side by side have mounts and a network of their own, which needs root: {call.__name__}: {why}")
    for words in NETWORK:
        subprocess.run(["ip", *words.split()], check=True)


def pytest_configure(config):
    os.umask(0o022)  # other users of a cluster read what its tests write
    if hasattr(config, "workerinput"):
        own_surroundings()
    elif os.environ.get("DDRUN_FAILURES"):
        config.pluginmanager.register(Failures(os.environ["DDRUN_FAILURES"]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for name in TOGETHER if name in nodeid), nodeid)

    return Scheduling(config, log)


class Failures:
    """Writes each failure to a file at once, which contrib/check shows at its end: "FAILED TEST", and the last lines of what
    failed, behind blanks. So they are known even if the run is ended."""

    def __init__(self, place):
        self.place = place

    def pytest_runtest_logreport(self, report, lines=40, width=500):
        if not report.failed:
            return
        text = [line for _, part in [("", report.longreprtext), *report.sections] for line in part.splitlines()]
        cause = [line for line in text[:-lines] if line.startswith("E  ")][:10]  # the output that follows it may be long
        with open(self.place, "a", encoding="utf-8", errors="backslashreplace") as f:
            f.writelines([f"FAILED {report.nodeid}\n", *(f"    {line[:width]}\n" for line in cause + text[-lines:])])

    pytest_collectreport = pytest_runtest_logreport
