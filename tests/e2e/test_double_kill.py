"""Guardian and agent of a node are killed at the same time, so that neither cleans up after the other: nothing is left."""

import contextlib
import os
import signal

import pytest

from support import DDRUN, Job, built_with, clean_env, comm, marked, until

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def abstract_sockets():
    """Return the names of the abstract Unix sockets of ddrun on this machine."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        return {name for name in (line.split()[-1] for line in f) if name.startswith("@ddrun")}


def kill_at_one_blow(pids):
    """Stop them all first: none sees the end of another."""
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


def make_tree(tmp_path):
    top = tmp_path / "env"
    top.mkdir()
    (top / "file").write_bytes(os.urandom(100000))
    return top


def options(kind, tmp_path):
    if kind == "stage":
        if not built_with("ZSTD"):
            pytest.skip("ddrun was built without libzstd")
        top = make_tree(tmp_path)
        return [f"--stage={top}"], f"test -s {top}/file && "
    if kind == "pmix" and not built_with("PMIX"):
        pytest.skip("ddrun was built without libpmix")
    return {"plain": [], "pmix": ["--mpi=pmix"], "flight": ["--flight-recorder=on"],
            "files": [f"--timeline={tmp_path}/t.json", f"--metrics={tmp_path}/m.prom", f"--log-dir={tmp_path}/logs", "--tee=3"],
            "stacks": ["--stacks=auto"]}[kind], ""


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "pmix", "stage", "flight", "files", "stacks"])
def test_nothing_is_left_after_a_double_kill(tmp_path, kind, nodes):
    given, first = options(kind, tmp_path)
    before = abstract_sockets()
    more = [f"--simulate-nodes={nodes}"] if nodes > 1 else []
    with Job(*more, "--nproc-per-node=1", *given, "sh", "-c", first + "touch $TMPDIR/$RANK && exec sleep 600", env=clean_env()) as job:
        tmp = job.places["TMPDIR"].name
        until(lambda: all(os.path.exists(f"{tmp}/{rank}") for rank in range(nodes)), say="all workers run")
        for rank in range(nodes):
            os.unlink(f"{tmp}/{rank}")
        kill_at_one_blow(job.processes("ddrun"))
        assert job.wait() != 0
        until(lambda: not marked(job.mark), say="the end of all processes: " + repr([comm(p) for p in marked(job.mark)]))
        job.assert_nothing_left()
        until(lambda: not abstract_sockets() - before, say="the end of the abstract sockets")


def test_a_guardian_killed_before_its_agent_leaves_no_files(tmp_path):
    """The agent stops the helper of PMIx before it is killed: none of the three removes the directory."""
    if not built_with("PMIX"):
        pytest.skip("ddrun was built without libpmix")
    script = "trap 'touch $TMPDIR/stopping; while :; do sleep 1; done' TERM; touch $TMPDIR/ready; while :; do sleep 0.1; done"
    with Job("--nproc-per-node=1", "--mpi=pmix", "--shutdown-timeout=100s", "sh", "-c", script, env=clean_env()) as job:
        tmp = job.places["TMPDIR"].name
        until(lambda: os.path.exists(f"{tmp}/ready"), say="the worker runs")
        agent = job.agents()[0]
        os.kill(job.p.pid, signal.SIGKILL)
        until(lambda: os.path.exists(f"{tmp}/stopping"), say="the agent stops the worker")
        for helper in job.processes("ddrun-pmix"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        assert job.wait() != 0
        until(lambda: not marked(job.mark), say="the end of all processes")
        for name in ("ready", "stopping"):
            os.unlink(f"{tmp}/{name}")
        job.assert_nothing_left()
