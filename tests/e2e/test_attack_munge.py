"""Another user keeps munged busy, whose few threads wait for each silent connection: no job is lost by that."""

import os
import re

import pytest

from cluster import until
from support import DDRUN, KEY, built_with, program
from test_attack_keys import pbs_job, seen_by, users  # noqa: F401
from test_attack_ports import MASK, elected
from test_other_ways import nodes  # noqa: F401

LIMIT = 240
PYTHON3 = "/usr/bin/python3"
COOKIE = "0123456789ABCDEF" * 2  # of PBS; no key of the job where MUNGE runs
FEW_FILES = ["prlimit", "--nofile=200:200", "--"]
MUNGE_SOCKET = "/run/munge/munge.socket.2"

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("MUNGE"), reason="ddrun was built without libmunge (libmunge-dev)")]


def fnv1a(text):
    h = 0xcbf29ce484222325
    for c in text.encode():
        h = (h ^ c) * 0x100000001b3 & MASK
    return h


def test_ddrund_serves_its_agents_while_munged_does_not_answer_it(cluster):
    go = os.path.join(cluster.directory("munge", "alice"), "go")
    args = ["--hosts=node[1-2]", "--rdzv-id=munge", "--heartbeat=5s", "--log-level=info", "--nproc-per-node=1", "--no-python",
            "sh", "-c", f"echo begun; until [ -e {go} ]; do sleep 0.1; done"]
    runs = [cluster.popen([DDRUN, *args], node=name, user="alice") for name in ("node1", "node2")]
    flood = None
    try:
        until(lambda: all("begun" in run.out for run in runs), LIMIT, lambda: runs[0].err + runs[1].err)
        assert "key source: MUNGE" in runs[0].err, runs[0].err
        job, port = re.search(r"leading job '(\S+)' on port (\d+)", runs[0].err).groups()
        daemon, = [p.pid for p in cluster.processes("node1") if p.cmdline == "ddrund"]
        filters = cluster.run(["sh", "-c", f"grep -h ^Seccomp: /proc/{daemon}/task/*/status"], node="node1").out.split()
        assert filters == ["Seccomp:", "2"] * 2  # of the event loop, and of the thread that asks munged
        flood = cluster.popen([PYTHON3, program("munge_flood.py"), MUNGE_SOCKET, cluster.address("node1"), port, job],
                              node="node1", user="bob")
        until(lambda: "asked" in flood.out or any(run.rc is not None for run in runs), LIMIT, lambda: flood.out + flood.err)
        cluster.run(["touch", go], user="alice")
        done = [run.wait(LIMIT) for run in runs]
        assert [d.rc for d in done] == [0, 0], done[0].err + done[1].err
    finally:
        for run in (*runs, flood):
            if run is not None:
                run.__exit__(None, None, None)


def test_output_of_started_nodes_goes_on_while_munged_does_not_answer_the_ddrun_that_started_them(users):  # noqa: F811
    """The port and the id are in the ticket, in the argument list of the starter."""
    starter, go = f"{users.place}/pbs_tmrsh", f"{users.place}/go"
    task = " ".join(f"{k}={v}" for k, v in pbs_job(users.place, COOKIE, 1).items())
    with open(starter, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nshift\nexec env -i HOME=$HOME PATH=/bin:/usr/bin {task} \"$@\" </dev/null\n")
    os.chmod(starter, 0o755)
    script = f"while [ $RANK = 1 ] && [ ! -e {go} ]; do echo line; sleep 0.1; done"
    seen = {}  # number of hellos: lines of rank 1 by then
    with users.start("alice", "node1", DDRUN, "--launcher=pbs_tmrsh", f"--launch-command={starter}", "--nproc-per-node=1",
                     "--log-level=info", "sh", "-c", script, **{**pbs_job(users.place, COOKIE, 0), "PBS_TASKNUM": "1"}) as job:
        until(lambda: "line" in job.out or job.rc is not None, LIMIT, lambda: job.err)
        _, port, secret = seen_by(users, "node1", "--launched=").split("/")[:3]
        with users.start("bob", "node1", PYTHON3, program("munge_flood.py"), MUNGE_SOCKET, "127.0.0.1", port, secret) as flood:
            def asked():
                seen.setdefault(flood.out.count("hello"), job.out.count("line"))
                return "asked" in flood.out or job.rc is not None
            until(asked, LIMIT, lambda: flood.out + flood.err)
            lines = job.out.count("line") - seen[max(seen)]
        assert job.rc is None and lines > 10, (lines, job.err)  # 70 on an idle machine
        with open(go, "w", encoding="ascii"):
            pass
        assert job.wait(LIMIT).rc == 0, job.err


def most_descriptors(cluster, word):
    """Return the largest number of descriptors of a process on node1 with this word in its argument list."""
    pids = [p.pid for p in cluster.processes("node1") if word in p.cmdline.split()]
    count = "for p; do ls /proc/$p/fd | wc -l; done 2>/dev/null; true"
    return max(map(int, cluster.run(["sh", "-c", count, "sh", *map(str, pids)], node="node1").out.split()), default=0)


def test_a_flood_leaves_the_ddrun_that_starts_the_other_nodes_a_descriptor_to_ask_munged(users):  # noqa: F811
    """The connections that it would accept are more than it has descriptors."""
    starter, go = f"{users.place}/pbs_tmrsh", f"{users.place}/go"
    task = " ".join(f"{k}={v}" for k, v in pbs_job(users.place, COOKIE, 1).items())
    with open(starter, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nshift\nuntil [ -e {go} ]; do sleep 0.1; done\n"
                f"exec env -i HOME=$HOME PATH=/bin:/usr/bin {task} \"$@\" </dev/null\n")
    os.chmod(starter, 0o755)
    with users.start("alice", "node1", *FEW_FILES, DDRUN, "--launcher=pbs_tmrsh", f"--launch-command={starter}", "--nproc-per-node=1",
                     "--no-python", "echo", "ran", **{**pbs_job(users.place, COOKIE, 0), "PBS_TASKNUM": "1"}) as job:
        ticket = until(lambda: seen_by(users, "node1", "--launched="), LIMIT, lambda: job.err)
        with users.start("bob", "node1", PYTHON3, program("flood.py"), "127.0.0.1", ticket.split("/")[1], "0", "hellos") as flood:
            flood.wait_for("flooding")
            until(lambda: most_descriptors(users.cluster, "--launcher=pbs_tmrsh") > 150, LIMIT, lambda: job.err)
            with open(go, "w", encoding="ascii"):
                pass
            done = job.wait(LIMIT)
        assert (done.rc, done.out) == (0, "ran\nran\n"), done.err


def test_a_node_that_has_the_key_of_the_job_does_not_ask_munged_for_one_that_a_neighbour_offers(cluster):
    """The neighbour has taken the first port at which agents look for ddrund."""
    job = f"hosts.{fnv1a('node[1-2]'):016x}.offer"
    go = os.path.join(cluster.directory("offer", "alice"), "go")
    args = [DDRUN, "--hosts=node[1-2]", "--rdzv-id=offer", "--log-level=info", "--nproc-per-node=1", "--no-python",
            "sh", "-c", f"echo begun; until [ -e {go} ]; do sleep 0.1; done"]
    how = {"user": "alice", "env": {"DDRUN_KEY": KEY}}
    runs = []

    def said():
        return "\n".join(run.out + run.err for run in runs)

    try:
        flood = cluster.popen([PYTHON3, program("munge_flood.py"), MUNGE_SOCKET], node="node2", user="bob")
        offer = cluster.popen([PYTHON3, program("munge_offer.py"), str(elected(job, 1)[0])], node="node1", user="bob")
        runs = [flood, offer]
        until(lambda: "busy" in flood.out and "listening" in offer.out, LIMIT, said)
        joins = cluster.popen(args, node="node2", **how)
        runs.append(joins)
        until(lambda: "offered" in offer.out or joins.rc is not None, LIMIT, said)
        leads = cluster.popen(args, node="node1", **how)
        runs.append(leads)
        until(lambda: all("begun" in run.out for run in (leads, joins)) or joins.rc is not None, LIMIT, said)
        assert f"leading job '{job}'" in leads.err, said()
        agents = [p.pid for p in cluster.processes("node2") if "--rdzv-id=offer" in p.cmdline]
        maps = cluster.run(["cat", *(f"/proc/{pid}/maps" for pid in agents)], node="node2").out
        assert "ddrun" in maps and "libmunge" not in maps, maps
        cluster.run(["touch", go], user="alice")
        done = [run.wait(LIMIT) for run in (leads, joins)]
        assert [d.rc for d in done] == [0, 0], said()
    finally:
        for run in runs:
            run.__exit__(None, None, None)
