"""Agents started without srun, one per node: by PBS, with --hosts, or with torchrun's options.

Each node has a network, name and /tmp of its own; the nodes share only a directory. PBS's variables come from the recorded
environments (tests/data/env), with the nodes' names put in.
"""

import os

import pytest

from cluster import until
from support import DDRUN, HERE, KEY, PYTHON, json_lines, program, some_line

LIGHT = os.path.join(HERE, "train_light.py")
LIMIT = 300  # seconds; only to end a hang
COOKIE = "5B2C0D5E1F7A4E3D9C8B7A6F5E4D3C2B"

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


@pytest.fixture
def nodes(cluster):
    before = cluster.snapshot()
    yield cluster
    cluster.assert_nothing_left(before)


def start_each(cluster, names, args, env):
    """Run ddrun on each of the nodes, the last one first; return the results in the order of the names."""
    runs = {}
    try:
        for i, name in reversed(list(enumerate(names))):
            runs[name] = cluster.popen([DDRUN, *args(i)], node=name, env={"PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1", **env(i)})
        return [runs[name].wait(LIMIT) for name in names]
    finally:
        for run in runs.values():
            run.__exit__(None, None, None)


def assert_ran(done, names, per_node=2):
    assert [d.rc for d in done] == [0] * len(names), "".join(d.err for d in done)
    lines = sorted((line for d in done for line in json_lines(d.out)), key=lambda line: line["rank"])
    assert [(line["rank"], line["local_rank"]) for line in lines] == [(r, r % per_node) for r in range(len(names) * per_node)]
    for i, d in enumerate(done):
        assert {line["rank"] // per_node for line in json_lines(d.out)} == {i}, "ranks in the order of the list"


def pbs_env(cluster, order, i, taskno):
    nodefile = os.path.join(cluster.work, "nodefile")
    with open(nodefile + ".new", "w", encoding="ascii") as f:
        f.writelines(f"{name}.cluster.test\n" for name in order for _ in range(2))  # mpiprocs=2; full names, which do not resolve here
    os.replace(nodefile + ".new", nodefile)  # an agent that runs already may be reading it
    return {"PBS_JOBID": "12.pbshead", "PBS_NODEFILE": nodefile, "PBS_NODENUM": str(i), "PBS_TASKNUM": taskno,
            "PBS_JOBCOOKIE": COOKIE, "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_MOMPORT": "15003", "NCPUS": "4", "ENVIRONMENT": "BATCH"}


def test_agents_started_by_pbs_take_the_order_of_the_node_file_and_munge(nodes):
    order = ["node3", "node1", "node4"]
    done = start_each(nodes, order, lambda i: ["--nproc-per-node=2", "--log-level=info", LIGHT],
                      lambda i: pbs_env(nodes, order, i, f"{i + 2}0000001"))
    assert_ran(done, order)
    assert "key source: MUNGE" in done[0].err and COOKIE not in done[0].err, done[0].err


def test_an_agent_with_another_key_is_refused_by_name(nodes):
    order = ["node1", "node2"]

    def env(i):
        return dict(pbs_env(nodes, order, i, f"{i + 2}0000001"), DDRUN_KEY=KEY if i == 0 else KEY[::-1])
    done = start_each(nodes, order, lambda i: ["--nproc-per-node=1", "--rdzv-timeout=15s", "true"], env)
    assert all(d.rc != 0 for d in done), done
    assert some_line(done[0].err, "warning: ", "node2", "refused") and some_line(done[0].err, "timed out", "node2"), done[0].err
    assert some_line(done[1].err, "key", "DDRUN_KEY"), done[1].err


@pytest.mark.parametrize("form", ["--hosts=node[4,2-3]", "--hostfile"])
def test_agents_on_a_host_list(nodes, form):
    order = ["node4", "node2", "node3"]
    option = form
    if form == "--hostfile":
        path = os.path.join(nodes.work, "hosts")
        with open(path, "w", encoding="ascii") as f:
            f.write("# fastest first\nnode4 slots=2\nnode2 slots=2\n\nnode3\n")
        option = f"--hostfile={path}"
    done = start_each(nodes, order, lambda i: [option, "--rdzv-id=list", "--nproc-per-node=2", LIGHT], lambda i: {"DDRUN_KEY": KEY})
    assert_ran(done, order)


def test_agents_as_torchrun_would_be_started(nodes):
    order = ["node2", "node1", "node3"]
    done = start_each(nodes, order, lambda i: ["--nnodes=3", f"--node-rank={i}", "--master-addr=node2", "--master-port=29555",
                                               "--nproc-per-node=2", LIGHT], lambda i: {"DDRUN_KEY": KEY})
    assert_ran(done, order)


def test_nodes_without_a_rank_are_placed_by_name_after_the_endpoint(nodes):
    order = ["node3", "node1", "node2"]
    done = start_each(nodes, order, lambda i: ["--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=node3:29444", "--rdzv-id=e",
                                               "--nproc-per-node=2", LIGHT], lambda i: {"DDRUN_KEY": KEY})
    assert_ran(done, order)


def test_without_any_key_it_says_what_the_choices_are(nodes):
    nodes.munge("node1", False)
    try:
        done = start_each(nodes, ["node1"], lambda i: ["--hosts=node[1-2]", "--rdzv-id=k", "--nproc-per-node=1", "true"],
                          lambda i: {"HOME": "/nonexistent"})
    finally:
        nodes.munge("node1", True)
    assert done[0].rc == 2, done
    assert all(word in done[0].err for word in ("--key-file", "MUNGE", "--insecure")), done[0].err


def test_insecure_needs_no_key_and_is_warned_about(nodes):
    order = ["node1", "node2"]
    done = start_each(nodes, order, lambda i: ["--hosts=node[1-2]", "--rdzv-id=open", "--insecure", "--nproc-per-node=2", LIGHT], lambda i: {})
    assert_ran(done, order)
    assert "insecure" in done[0].err, done[0].err


def test_another_user_on_another_node_is_turned_away_from_the_store(nodes):
    order = ["node1", "node2"]
    runs = [nodes.popen([DDRUN, "--hosts=node[1-2]", "--rdzv-id=users", "--nproc-per-node=1", "--shutdown-timeout=1s", program("tell_store.py")],
                        node=name, env={"PYTHON_EXEC": PYTHON, "DDRUN_KEY": KEY}) for name in order]
    try:
        _, host, port = until(lambda: runs[0].out if "\n" in runs[0].out else None, LIMIT, lambda: runs[0].err).split()
        told = {(node, user): nodes.run(["/usr/bin/python3", program("knock.py"), host, port], node=node, user=user).out.strip()
                for node in ("node1", "node2", "node3") for user in ("root", "alice")}
        assert told == {("node1", "root"): "answered", ("node2", "root"): "answered", ("node1", "alice"): "turned away",
                        ("node2", "alice"): "turned away",
                        ("node3", "root"): "turned away", ("node3", "alice"): "turned away"}  # no node of the job
        nodes.run(["pkill", "-TERM", "-x", "ddrun"], node="node2")
        assert [run.wait(LIMIT).rc for run in runs] == [143, 143]
    finally:
        for run in runs:
            run.__exit__(None, None, None)
