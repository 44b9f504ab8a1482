"""ddrund under its system call filter: the filter is installed, and denies no call that a job needs."""

import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

import c10d
from support import DDRUN, Job, clean_env, comm, free_port, json_lines, parent, program, run, until, with_torch
from webserver import needs_helper

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="ddrund has no filter on this processor")

REFUSED = "system call "  # part of ddrund's message about a call that its filter denies


def confinement(pid):
    """(NoNewPrivs, Seccomp) of /proc/PID/status; (1, 2) where it is confined."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    return int(lines["NoNewPrivs"]), int(lines["Seccomp"])


def open_files(pid):
    """Return what the descriptors of a process refer to, without anonymous inodes: those of all processes have the same names."""
    links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    return {link for link in links if not link.startswith("anon_inode:")}


def test_the_daemon_is_confined_and_its_workers_are_not():
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--no-python", "sleep", "1000") as job:
        until(lambda: len(job.processes("sleep")) == 2, say="the workers")
        (daemon,) = job.processes("ddrund")
        assert confinement(daemon) == (1, 2)
        assert {confinement(pid) for pid in job.processes("sleep")} == {confinement("self")}
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert REFUSED not in job.err


def test_the_daemon_is_forked_by_its_agent_and_has_the_name_of_the_program_ddrund(tmp_path):
    """The program alone suffices, and the daemon has none of its agent's descriptors."""
    alone = shutil.copy(DDRUN, tmp_path / "ddrun")
    with Job("--nproc-per-node=1", "--no-python", "sleep", "1000", program=alone) as job:
        until(lambda: job.processes("sleep"), say="the worker")
        (daemon,), (agent,) = job.processes("ddrund"), job.agents()
        assert parent(daemon) == agent
        assert os.readlink(f"/proc/{daemon}/exe") == str(alone)
        with open(f"/proc/{daemon}/cmdline", encoding="ascii") as f:
            assert f.read().strip("\0") == "ddrund"
        stdio = {os.readlink(f"/proc/{daemon}/fd/{i}") for i in range(3)}
        assert open_files(daemon) & open_files(agent) <= stdio


def own_address():
    """Return an address of this machine other than loopback; None: it has none that has a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return s.getsockname()[0]


# A worker that is admitted gets the answer to its ping.
PING = f"""
import os, socket
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as s:
    s.sendall({c10d.VALIDATE + c10d.ping()!r})
    print(s.recv(4) == {struct.pack("<I", 7)!r})
"""


@pytest.mark.skipif(own_address() is None, reason="this machine has no network")
def test_the_daemon_lists_the_interfaces_when_a_worker_connects_from_one_of_them():
    with Job(f"--local-addr={own_address()}", "--nproc-per-node=1", "--no-python", sys.executable, "-c", PING) as job:
        assert job.wait() == 0, job.err
        assert job.out == "True\n" and REFUSED not in job.err, job.err


def has_provider(name):
    done = subprocess.run(["openssl", "list", "-providers", "-provider", name], capture_output=True, text=True, check=False)
    return done.returncode == 0 and name in done.stdout


PROVIDERS = """openssl_conf = all
[all]
providers = list
[list]
default = active
legacy = active
[active]
activate = 1
"""


@pytest.mark.skipif(not has_provider("legacy"), reason="OpenSSL has no provider here that is a library of its own")
def test_a_provider_that_openssl_loads_from_a_file_is_loaded_before(tmp_path):
    """The FIPS provider is such a file: without it, OpenSSL makes no connection on a machine in FIPS mode."""
    (tmp_path / "openssl.cnf").write_text(PROVIDERS)
    env = clean_env(OPENSSL_CONF=str(tmp_path / "openssl.cnf"))
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--no-python", "sleep", "1000", env=env) as job:
        until(lambda: len(job.processes("sleep")) == 2, say="the workers")
        (daemon,) = job.processes("ddrund")
        with open(f"/proc/{daemon}/maps", encoding="ascii") as f:
            assert "/legacy.so" in f.read()
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert REFUSED not in job.err


@needs_helper
def test_a_daemon_with_a_web_hook_starts_its_helper_and_gains_no_privileges():
    with Job(f"--notify=http://127.0.0.1:{free_port()}/", "--nproc-per-node=1", "--no-python", "sleep", "1000") as job:
        def helper_of_daemon():
            return [p for p in job.processes("ddrun-web") if comm(parent(p)) == "ddrund"]

        helper, = until(helper_of_daemon, say="the daemon's helper")
        assert confinement(helper) == confinement(parent(helper)) == (1, 0)


@with_torch
def test_a_training_that_restarts_finds_a_fresh_store_and_needs_no_system_call_that_is_not_on_the_list():
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", program("restart_gloo.py"))
    assert job.p.returncode == 0, job.err
    assert sorted(r["rank"] for r in json_lines(job.out)) == [0, 1]
    assert REFUSED not in job.err


def test_two_nodes_with_a_key_in_the_home_directory_need_none_either(tmp_path):
    """The daemon removes the key's file at the end."""
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--nproc-per-node=1", "--munge-socket=/nonexistent",
            "--no-python", "true"]
    with Job("--node-rank=0", *args, home=str(tmp_path)) as first, Job("--node-rank=1", *args, home=str(tmp_path)) as second:
        assert (first.wait(), second.wait()) == (0, 0), first.err + second.err
        assert REFUSED not in first.err
        assert os.listdir(tmp_path / ".ddrun") == []
