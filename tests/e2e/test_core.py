"""Core files of ddrun's processes: none contains the job's key, and those of workers are as the user configured them."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import tempfile

import pytest

from support import DDRUN, Job, clean_env, comm, free_port, kill_marked, marked, parent, until

FILTER = "0000007b"  # a coredump_filter that no process has by default
KEY = "6b" * 16 + "c0ffee5eed1234567890abcdef987654"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def set_filter(text):
    with open("/proc/self/coredump_filter", "w", encoding="ascii") as f:
        f.write("0x" + text)


def filter_of(pid):
    with open(f"/proc/{pid}/coredump_filter", encoding="ascii") as f:
        return f.read().strip()


@contextlib.contextmanager
def users_cores():
    """Let processes started here write cores of any size, with the memory that FILTER selects."""
    before, limits = filter_of("self"), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    set_filter(FILTER)
    try:
        yield
    finally:
        set_filter(before)
        resource.setrlimit(resource.RLIMIT_CORE, limits)


class UsersJob:
    """A job of user 20001 with two nodes on one machine and its key in a file; `worker` runs on each node."""

    def __init__(self, place, worker):
        self.place = place
        os.chown(place, 20001, 20001)
        key = os.path.join(place, "key")
        with open(key, "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        os.chmod(key, 0o600)
        os.chown(key, 20001, 20001)
        port = str(free_port())
        self.mark = "DDRUN_TEST_MARK=" + os.urandom(16).hex()
        name, value = self.mark.split("=")
        env = clean_env(**{name: value, "HOME": place, "TMPDIR": place})
        with users_cores():
            self.nodes = [subprocess.Popen(
                [DDRUN, "--nnodes=2", f"--node-rank={i}", "--master-addr=127.0.0.1", f"--master-port={port}",
                 f"--key-file={key}", "--nproc-per-node=1", "--no-python", *worker],
                env=env, cwd=place, user=20001, group=20001, extra_groups=[], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(2)]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        kill_marked(self.mark)
        for node in self.nodes:
            node.kill()
            node.communicate()

    def processes(self, name):
        return [pid for pid in marked(self.mark) if comm(pid) == name]

    def agents(self):
        started = {node.pid for node in self.nodes}
        return [pid for pid in self.processes("ddrun") if pid not in started]

    def running(self):
        until(lambda: len(self.processes("sleep")) == 2, say="both workers")


@pytest.fixture
def job():
    with tempfile.TemporaryDirectory() as place, UsersJob(place, ["sleep", "1000"]) as running:
        running.running()
        yield running


def test_agents_and_the_daemon_leave_all_memory_out_of_their_cores(job):
    holders = job.agents() + job.processes("ddrund")
    assert len(holders) == 3
    assert {filter_of(pid) for pid in holders} == {"00000000"}


def test_cores_of_workers_hold_what_the_user_has_set(job):
    assert {filter_of(pid) for pid in job.processes("sleep")} == {FILTER}


@pytest.mark.parametrize("victim, shown", [("worker", True), ("agent", False), ("daemon", False)])
def test_only_a_workers_core_has_memory_in_it(job, victim, shown):
    """Each of the three processes has its environment, with the job's mark, in memory."""
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as f:
        pattern = f.read()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip("this machine's cores go elsewhere (core_pattern)")
    pid = {"worker": job.processes("sleep"), "agent": job.agents(), "daemon": job.processes("ddrund")}[victim][0]
    os.kill(pid, signal.SIGSEGV)
    until(lambda: pid not in marked(job.mark), say="its end")
    cores = [name for name in os.listdir(job.place) if name.startswith("core")]
    assert len(cores) == 1, os.listdir(job.place)
    with open(os.path.join(job.place, cores[0]), "rb") as f:
        assert (job.mark.encode() in f.read()) is shown


def test_the_process_that_starts_the_nodes_has_empty_cores_and_what_it_starts_has_not(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 1000\n")
    ssh.chmod(0o755)
    hosts = f"{socket.gethostname()},198.51.100.1"  # an unassigned address (RFC 5737)
    with users_cores(), Job("--launcher=ssh", f"--launch-command={ssh}", f"--hosts={hosts}", "--nproc-per-node=1", "--no-python",
                            "true") as job:
        starters = until(lambda: job.processes("sleep"), say="the starter")
        guardians = until(lambda: [pid for pid in job.processes("ddrun") if parent(pid) == job.p.pid], say="this node")
        assert filter_of(job.p.pid) == "00000000"
        until(lambda: {filter_of(pid) for pid in starters + guardians} == {FILTER}, say="the user's filter, which a process sets that has been forked")
