"""ddctl doctor on four nodes of a real Slurm: it finds each planted fault, on its node, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from support import DDRUN, clean_env, some_line
from test_slurm import LIMIT, slurm, until  # noqa: F401

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

pytestmark = pytest.mark.skipif(not os.access(DDCTL, os.X_OK), reason=f"{DDCTL} is not built")


HINTS = ("MASTER_ADDR=", "ptrace_scope", "the bandwidth to", "a round trip to")


def examine(slurm, fault="", *args):  # noqa: F811
    """Return the findings as [(nodes, what)], and the whole report. A shell on node3 runs `fault` before ddctl examines the
    node."""
    planted = slurm.file("planted", f'[ "$(hostname)" = node3 ] && {{ {fault or ":"}\n}}\nexec "$@"\n')
    wrapper = slurm.file("srun-with-fault", f"""#!/bin/bash
options=()
while [[ $1 == -* ]]; do options+=("$1"); shift; done
exec srun "${{options[@]}}" bash {planted} "$@"
""")
    with slurm.popen(["salloc", "-Q", "-N4", "--gres=gpu:2", DDCTL, "doctor", "--format=json", "--limit=20s",
                      f"--launch-command={wrapper}", *args]) as run:
        done = run.wait(LIMIT)
    found = json.loads(done.out)
    assert done.rc == (0 if all(f["hint"] for f in found["findings"]) else 1), done.err
    assert all(f["hint"] == any(part in f["what"] for part in HINTS) for f in found["findings"])
    return [(f["nodes"], f["what"]) for f in found["findings"]], found


def test_healthy_nodes_have_no_findings(slurm):  # noqa: F811
    findings, all_ = examine(slurm)
    assert findings == []
    assert [n["node"] for n in all_["nodes"]] == ["node1", "node2", "node3", "node4"]
    assert sorted(all_["nodes"][0]["came"]) == [1, 2, 3] and all_["nodes"][1]["came"] == [0]


def test_a_report_without_findings_lists_what_was_checked(slurm):  # noqa: F811
    with slurm.popen(["salloc", "-Q", "-N2", "--gres=gpu:2", DDCTL, "doctor", "--limit=20s"]) as run:
        done = run.wait(LIMIT)
    assert done.rc == 0, done.err
    first = done.out.splitlines()[0]
    assert first.startswith("no problems found on 2 nodes (")
    assert all(what in first for what in ("names", "network", "key", "limits", "/dev/shm", "CPUs", "GPUs", "environment")), first


FAULTS = {
    "files": ("ulimit -n 256", "256"),
    "processes": ("ulimit -u 300", "300 processes"),
    "one core": ("taskset -pc 0 $$ >/dev/null", "CPU"),
    "GPUs": ("export CUDA_VISIBLE_DEVICES=0", "1 GPU"),
    "no GPU": ("export CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES"),
    "temporary files": ("export TMPDIR=/nowhere", "/nowhere"),
    "interface": ("export NCCL_SOCKET_IFNAME=ib7", "NCCL_SOCKET_IFNAME=ib7"),
    "left over": ("export MASTER_ADDR=old", "MASTER_ADDR=old"),
    "not there": ("exit 1", "start"),
    "clock": (f"export LD_PRELOAD={FAKETIME} FAKETIME=+10m FAKETIME_DONT_FAKE_MONOTONIC=1",
              "clock of"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(slurm, name):  # noqa: F811
    fault, what = FAULTS[name]
    if name == "clock" and not os.path.exists(FAKETIME):
        pytest.skip("no libfaketime (Debian package faketime)")
    if name == "one core" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this machine has one CPU")
    findings, _ = examine(slurm, fault)
    if name == "clock":  # seen by the nodes that asked node3, and by node3
        assert any(nodes == "node2" and re.search("clock of node3 is (599|600|601) s ahead", text) for nodes, text in findings)
        assert all("clock of" in text for _, text in findings)
        return
    assert any(nodes == "node3" and what in text for nodes, text in findings), findings
    assert {nodes for nodes, text in findings if "reach" not in text} == {"node3"}


def test_nccl_takes_the_beginning_of_a_name_for_an_interface(slurm):  # noqa: F811
    findings, _ = examine(slurm, "export NCCL_SOCKET_IFNAME=eth")
    assert findings == []
    findings, _ = examine(slurm, "export GLOO_SOCKET_IFNAME=eth")
    assert [nodes for nodes, what in findings if "GLOO_SOCKET_IFNAME=eth" in what] == ["node3"]


def test_a_name_that_leads_elsewhere(slurm):  # noqa: F811
    made = slurm.cluster
    made.set_hosts("node3", made.hosts("node3").replace(made.address("node4"), made.address("node4", "nobody")))
    findings, _ = examine(slurm)
    (nodes, text), = findings
    assert nodes == "node3" and "node4" in text and made.address("node4", "nobody") in text


def test_a_blocked_way(slurm):  # noqa: F811
    made = slurm.cluster
    route = f"prohibit {made.address('node4')}/32"
    made.machines["node3"].net([f"route add {route}"])
    try:
        findings, _ = examine(slurm)
    finally:
        made.machines["node3"].net([f"route del {route}"])
    (nodes, text), = findings
    assert nodes == "node3" and "node4" in text and "reach" in text


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
    assert [nodes for nodes, text in findings] == ["node3"] and "/dev/shm" in findings[0][1]


def test_words_for_a_person(slurm):  # noqa: F811
    with slurm.popen(["salloc", "-Q", "-N4", "sh", "-c", f"ulimit -n 256; exec {DDCTL} doctor"]) as run:
        done = run.wait(LIMIT)
    assert done.rc == 1
    assert some_line(done.out, "4 nodes") and some_line(done.out, "node[1-4]: ", "256") and some_line(done.out, "ulimit -n 65536"), done.out


def test_text_of_nodes_and_variables_cannot_control_the_terminal():
    done = subprocess.run([DDCTL, "doctor"], stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
                          env=clean_env(MASTER_ADDR="\x1b[2Jold\nvm: forged \u00e9"))
    assert "\x1b" not in done.stdout and some_line(done.stdout, "hint: MASTER_ADDR=", "old vm: forged \u00e9 is set"), done.stdout


def look_with(slurm, *args):  # noqa: F811
    """Return the findings of ddrun --doctor, given before a job's command line, and the whole report."""
    with slurm.popen(["salloc", "-Q", "-N4", DDRUN, "--doctor=json", *args, "--nproc-per-node=2", "train.py"]) as run:
        done = run.wait(LIMIT)
    found = json.loads(done.out)
    return [(f["nodes"], f["what"]) for f in found["findings"]], found


def test_the_port_that_is_asked_for_is_the_one_that_is_looked_at(slurm):  # noqa: F811
    """All nodes check the port, because the daemon may move to any of them."""
    held = ("import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); import time; time.sleep(600)")
    with slurm.cluster.popen([sys.executable, "-c", held], node="node3", user=slurm.user) as holder:
        port = until(lambda: holder.out.strip(), LIMIT, lambda: holder.err)
        findings, _ = examine(slurm, "", f"--master-port={port}", "--limit=15s")
    assert [what for nodes, what in findings if nodes == "node3"] and all("node3" in nodes + what for nodes, what in findings)
    assert any(nodes == "node3" and str(port) in what and "reach" not in what for nodes, what in findings), findings


def test_the_workers_network_is_looked_at(slurm):  # noqa: F811
    made = slurm.cluster
    made.machines["node3"].net(["link add dm0 type bridge", f"addr add {made.address('node3', 'nobody')}/24 dev dm0", "link set dm0 up"])
    try:
        findings, _ = look_with(slurm, "--iface=dm0")
        healthy, found = look_with(slurm, "--iface=eth0")
    finally:
        made.machines["node3"].net(["link del dm0"])
    named = [nodes for nodes, what in findings if "--iface=dm0" in what]
    assert named == ["node[1-2,4]"]
    assert healthy == []
    assert [p["iface_address"] for p in found["nodes"][1]["probes"]] == [made.address("node3"), made.address("node1")]


def test_a_workers_network_that_ends_somewhere_is_found(slurm):  # noqa: F811
    """Each node has an interface of that name, but no two are connected."""
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
    assert all(re.search(r"node\d.* dm0\b", what) for _, what in findings)


def test_the_address_of_the_first_node_is_the_one_that_is_said(slurm):  # noqa: F811
    said = slurm.cluster.address("node1", "nobody")
    findings, _ = examine(slurm, "", f"--master-addr={said}", "--limit=15s")
    assert [nodes for nodes, _ in findings] == ["node[2-4]"]
    assert "node1" in findings[0][1] and said in findings[0][1]


def test_without_a_starter_it_says_how_to_get_one(slurm):  # noqa: F811
    done = slurm.cluster.run([DDCTL, "doctor", "--hosts=node1,node2"], node="node1", user=slurm.user)
    assert done.rc == 2 and "--launcher=ssh" in done.err


def shape(slurm, words):  # noqa: F811
    """Run tc(8) in the network of node3."""
    done = subprocess.run(["nsenter", "-t", str(slurm.cluster.machines["node3"].init.pid), "-n", "--", "tc", *words.split()], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"tc: {done.stderr.strip()}")


def test_the_network_of_a_slow_node_is_measured_and_marked(slurm):  # noqa: F811
    """The kernel limits what node3 sends to 8 Mbit/s."""
    if shutil.which("tc") is None:
        pytest.skip("no tc (Debian package iproute2)")
    shape(slurm, "qdisc add dev eth0 root tbf rate 8mbit burst 16kb latency 200ms")
    try:
        findings, found = examine(slurm, "", "--net", f"--limit={LIMIT}s")
    finally:
        shape(slurm, "qdisc del dev eth0 root")
    pairs = found["network"]["pairs"]
    assert [(pair["from"], pair["to"]) for pair in pairs] == [("node1", "node2"), ("node2", "node3"), ("node3", "node4"), ("node4", "node1")]
    assert [pair["error"] for pair in pairs] == [""] * 4, found
    assert [pair["address"] for pair in pairs] == [slurm.cluster.address(name) for name in ("node2", "node3", "node4", "node1")]
    assert pairs[2]["slow"] and pairs[2]["bytes_per_second"] < 2_000_000, pairs
    assert any(nodes == "node3" and "bandwidth to node4" in what for nodes, what in findings), findings


def test_the_network_is_measured_at_the_address_of_the_interface(slurm):  # noqa: F811
    findings, found = examine(slurm, "", "--net", "--iface=eth0", f"--limit={LIMIT}s")
    assert [pair["address"] for pair in found["network"]["pairs"]] == [slurm.cluster.address(name) for name in ("node2", "node3", "node4", "node1")]
    assert all(pair["error"] == "" and pair["bytes_per_second"] > 0 for pair in found["network"]["pairs"]), findings
