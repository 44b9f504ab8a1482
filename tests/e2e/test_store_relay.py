"""ddrun --store=relay: workers speak to their own node's agent, which answers or carries their requests to ddrund."""

import os
import re
import signal
import socket

import pytest

from support import LIMIT, PYTHON, Job, program, run, with_torch

MEMBER = [PYTHON, program("store_member.py")]
NODES = ["--store=relay", "--simulate-nodes=2", "--nproc-per-node=2"]


def store_sockets(pid):
    """Return the number of TCP connections that a process has accepted or made."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    count = 0
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="utf-8") as f:
            count += sum(1 for line in f.readlines()[1:] if line.split()[3] == "01" and f"socket:[{line.split()[9]}]" in inodes)
    return count


def test_workers_of_each_node_meet_at_their_own_agent():
    job = run(*NODES, *MEMBER)
    assert job.p.returncode == 0, job.err
    seen = dict(re.findall(r"rank=(\d) port=(\d+) ", job.out))
    assert sorted(seen) == ["0", "1", "2", "3"]
    assert seen["0"] == seen["1"] != seen["2"] == seen["3"]


def test_ddrund_has_one_connection_for_each_other_node():
    with Job(*NODES, "--nnodes=2", *MEMBER, "stay") as job:
        out = job.line("rank=")
        while len(re.findall("rank=", out)) < 4:
            out += job.line("rank=")
        daemon, = job.processes("ddrund")
        assert store_sockets(daemon) == 1  # the first node's agent is connected by a socket pair
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM
        job.assert_nothing_left()


def test_restart_finds_nothing_of_the_round_before():
    job = run(*NODES, "--max-restarts=1", *MEMBER, "fail")
    assert job.p.returncode == 0, job.err
    assert sorted(re.findall(r"rank=(\d) port=\d+ restarts=1 old=0", job.out)) == ["0", "1", "2", "3"]


def test_workers_lose_the_store_with_ddrund_and_meet_again():
    with Job("--store=relay", "--simulate-nodes=3", "--nproc-per-node=1", "--max-restarts=3", *MEMBER, "stay") as job:
        out = job.line("restarts=0")
        while len(re.findall("restarts=0", out)) < 3:
            out += job.line("restarts=0")
        os.kill(job.processes("ddrund")[0], signal.SIGKILL)
        while len(re.findall(r"rank=\d port=\d+ restarts=1", out)) < 3:
            out += job.line("restarts=1")
        job.p.send_signal(signal.SIGTERM)
        job.wait()
        job.assert_nothing_left()
        assert "lost=False" not in out + job.out


def test_killed_agent_leaves_nothing():
    with Job("--store=relay", "--nproc-per-node=2", *MEMBER, "stay") as job:
        out = job.line("port=")
        while len(re.findall("port=", out)) < 2:  # both: a worker that is being started is a second ddrun
            out += job.line("port=")
        port = int(re.search(r"port=(\d+)", out).group(1))
        agent, = job.agents()
        os.kill(agent, signal.SIGKILL)
        job.wait()
        job.assert_nothing_left()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT).close()


def test_dry_run_shows_the_agent_as_master():
    job = run("--store=relay", "--dry-run", "--nproc-per-node=1", "true")
    assert "MASTER_ADDR=127.0.0.1" in job.out and "MASTER_PORT=<port>" in job.out, job.out


def test_unknown_store_is_refused():
    job = run("--store=fast", "true")
    assert job.p.returncode == 2
    assert "--store" in job.err and "direct" in job.err and "relay" in job.err


@with_torch
def test_torch_groups_work_through_relays(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("""
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
pair = dist.new_group([0, 3])
x = torch.ones(1) * dist.get_rank()
dist.all_reduce(x)
if dist.get_rank() in (0, 3):
    dist.all_reduce(torch.ones(1), group=pair)
store = dist.distributed_c10d._get_default_store()
try:
    store.wait(["never"], datetime.timedelta(milliseconds=100))
except dist.DistStoreError:
    print(f"sum={x.item():.0f}", flush=True)
dist.destroy_process_group()
os._exit(0)  # see train_torch.py
""")
    job = run(*NODES, PYTHON, str(script))
    assert job.p.returncode == 0, job.err
    assert job.out.count("sum=6") == 4
