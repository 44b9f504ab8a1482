"""ddctl doctor on four nodes of a real Slurm: what is planted is found, on its node; nothing else is."""

import json
import os
import re
import sys

import pytest

from support import DDRUN
from test_slurm import LIMIT, _can_cluster, _four_nodes, cluster, slurm, until  # noqa: F401

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

pytestmark = pytest.mark.skipif(not os.access(DDCTL, os.X_OK), reason=f"{DDCTL} is not built")


def examine(slurm, fault="", *args):  # noqa: F811
    """Findings as [(nodes, what)]; `fault` is done by a shell on node3, before ddctl looks there."""
    planted = slurm.file("planted", f'[ "$(hostname)" = node3 ] && {{ {fault or ":"}\n}}\nexec "$@"\n')
    wrapper = slurm.file("srun-with-fault", f"""#!/bin/bash
options=()
while [[ $1 == -* ]]; do options+=("$1"); shift; done
exec srun "${{options[@]}}" bash {planted} "$@"
""")
    with slurm.popen(["salloc", "-Q", "-N4", "--gres=gpu:2", DDCTL, "doctor", "--format=json", "--limit=10s",
                      f"--launch-command={wrapper}", *args]) as run:
        done = run.wait(LIMIT)
    found = json.loads(done.out)
    assert done.rc == (0 if all(f["hint"] for f in found["findings"]) else 1), done.err
    assert all(f["hint"] == ("left over" in f["what"] or "ptrace_scope" in f["what"]) for f in found["findings"])
    return [(f["nodes"], f["what"]) for f in found["findings"]], found


def test_healthy_nodes_have_no_findings(slurm):  # noqa: F811
    findings, all_ = examine(slurm)
    assert findings == []
    assert [n["node"] for n in all_["nodes"]] == ["node1", "node2", "node3", "node4"]
    assert sorted(all_["nodes"][0]["came"]) == [1, 2, 3] and all_["nodes"][1]["came"] == [0]


FAULTS = {
    "files": ("ulimit -n 256", "only 256 files may be open"),
    "processes": ("ulimit -u 300", "only 300 processes"),
    "one core": ("taskset -pc 0 $$ >/dev/null", "one of"),
    "GPUs": ("export CUDA_VISIBLE_DEVICES=0", "1 GPUs, where others have 2"),
    "no GPU": ("export CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES is empty"),
    "temporary files": ("export TMPDIR=/nowhere", "temporary files cannot be written: /nowhere"),
    "interface": ("export NCCL_SOCKET_IFNAME=ib7", "NCCL_SOCKET_IFNAME=ib7 names no interface"),
    "left over": ("export MASTER_ADDR=old", "MASTER_ADDR=old is left over"),
    "not there": ("exit 1", "nothing could be started there"),
    "clock": (f"export LD_PRELOAD={FAKETIME} FAKETIME=+10m FAKETIME_DONT_FAKE_MONOTONIC=1",
              "the clock of"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(slurm, name):  # noqa: F811
    fault, what = FAULTS[name]
    if name == "clock" and not os.path.exists(FAKETIME):
        pytest.skip("no libfaketime (Debian package faketime)")
    if name == "one core" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this machine has one CPU")
    findings, _ = examine(slurm, fault)
    if name == "clock":  # seen by those who have asked node3, and by node3
        assert any(nodes == "node2" and text.startswith("the clock of node3 is 600 s ahead") for nodes, text in findings)
        assert all("clock of" in text for _, text in findings)
        return
    assert ("node3", what) in [(nodes, text[:len(what)]) for nodes, text in findings]
    assert {nodes for nodes, text in findings if "cannot be reached" not in text} == {"node3"}


def test_a_name_that_leads_elsewhere(slurm):  # noqa: F811
    made = slurm.cluster
    made.set_hosts("node3", made.hosts("node3").replace(made.address("node4"), made.address("node4", "nobody")))
    findings, _ = examine(slurm)
    assert findings == [("node3", f"the name node4 leads to {made.address('node4', 'nobody')}, which is no address of that node")]


def test_a_blocked_way(slurm):  # noqa: F811
    made = slurm.cluster
    route = f"prohibit {made.address('node4')}/32"
    made.machines["node3"].net([f"route add {route}"])
    try:
        findings, _ = examine(slurm)
    finally:
        made.machines["node3"].net([f"route del {route}"])
    assert [(nodes, text.split(":")[0]) for nodes, text in findings] == [("node3", "node4 cannot be reached")]


def test_a_node_without_munge(slurm):  # noqa: F811
    slurm.cluster.munge("node3", False)
    findings, _ = examine(slurm)
    assert findings and all("node3" in nodes + text for nodes, text in findings)
    assert any(nodes == "node3" and "key" in text for nodes, text in findings)


def test_a_full_shm(slurm):  # noqa: F811
    node = slurm.cluster.machines["node3"]
    node.run(["mount", "-o", "remount,size=1M", "/dev/shm"])
    try:
        findings, _ = examine(slurm)
    finally:
        node.run(["mount", "-o", "remount,size=50%", "/dev/shm"])
    assert [nodes for nodes, text in findings] == ["node3"] and "/dev/shm has only" in findings[0][1]


def test_words_for_a_person(slurm):  # noqa: F811
    with slurm.popen(["salloc", "-Q", "-N4", "sh", "-c", f"ulimit -n 256; exec {DDCTL} doctor"]) as run:
        done = run.wait(LIMIT)
    assert done.rc == 1
    assert done.out == ("4 of 4 nodes answered; 1 finding\n\nnode[1-4]: only 256 files may be open at a time: data loaders and "
                        "NCCL need more\n    write 'ulimit -n 65536' in the job's script; a lower hard limit is the "
                        "administrator's\n")


def look_with(slurm, *args):  # noqa: F811
    """The findings of ddrun --doctor, as it stands in front of a job's command line."""
    with slurm.popen(["salloc", "-Q", "-N4", DDRUN, "--doctor=json", *args, "--nproc-per-node=2", "train.py"]) as run:
        done = run.wait(LIMIT)
    found = json.loads(done.out)
    return [(f["nodes"], f["what"]) for f in found["findings"]], found


def test_the_port_that_is_asked_for_is_the_one_that_is_looked_at(slurm):  # noqa: F811
    """Of all nodes: each may have the daemon one day."""
    held = ("import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); import time; time.sleep(600)")
    with slurm.cluster.popen([sys.executable, "-c", held], node="node3", user=slurm.user) as holder:
        port = until(lambda: holder.out.strip(), LIMIT, lambda: holder.err)
        findings, _ = examine(slurm, "", f"--master-port={port}", "--limit=2s")
    assert [what for nodes, what in findings if nodes == "node3"] and all("node3" in nodes + what for nodes, what in findings)
    assert any(nodes == "node3" and str(port) in what and "cannot be reached" not in what for nodes, what in findings), findings


def test_the_workers_network_is_looked_at(slurm):  # noqa: F811
    made = slurm.cluster
    made.machines["node3"].net(["link add dm0 type bridge", f"addr add {made.address('node3', 'nobody')}/24 dev dm0", "link set dm0 up"])
    try:
        findings, _ = look_with(slurm, "--iface=dm0")
        healthy, found = look_with(slurm, "--iface=eth0")
    finally:
        made.machines["node3"].net(["link del dm0"])
    named = [nodes for nodes, what in findings if what.startswith("--iface=dm0: this node has no such interface; it has ")]
    assert named == ["node[1-2,4]"]
    assert healthy == []
    assert [p["iface_address"] for p in found["nodes"][1]["probes"]] == [made.address("node3"), made.address("node1")]


def test_a_workers_network_that_ends_somewhere_is_found(slurm):  # noqa: F811
    """Each node has an interface of that name, and no cable leads from one to another."""
    made = slurm.cluster
    nodes = ("node1", "node2", "node3", "node4")
    try:
        for name in nodes:
            made.machines[name].net(["link add dm0 type bridge", f"addr add {made.address(name, 'nobody')}/24 dev dm0", "link set dm0 up"])
        findings, _ = look_with(slurm, "--iface=dm0")
    finally:
        for name in nodes:
            made.machines[name].net(["link del dm0"])
    assert sorted(nodes for nodes, _ in findings) == ["node1", "node2", "node3", "node[2-4]"]
    assert all(re.fullmatch(r"the workers' address of node\d, [\d.]+, cannot be reached through dm0: .+", what) for _, what in findings)


def test_the_address_of_the_first_node_is_the_one_that_is_said(slurm):  # noqa: F811
    said = slurm.cluster.address("node1", "nobody")
    findings, _ = examine(slurm, "", f"--master-addr={said}", "--limit=2s")
    assert [nodes for nodes, _ in findings] == ["node[2-4]"]
    assert "node1 cannot be reached" in findings[0][1] and said in findings[0][1]


def test_without_a_starter_it_says_how_to_get_one(slurm):  # noqa: F811
    done = slurm.cluster.run([DDCTL, "doctor", "--hosts=node1,node2"], node="node1", user=slurm.user)
    assert done.rc == 2 and "say --launcher=ssh" in done.err
