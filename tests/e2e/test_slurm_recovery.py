"""Faults that a job under a real Slurm survives: PyTorch resumes from its checkpoint, on the remaining nodes."""

import json
import os
import shutil

import pytest

from cluster import until
from support import DDRUN, HERE, json_lines, program
from test_slurm import LIMIT, in_time, slurm, slurm_with  # noqa: F401

STAY = ("--no-kill", "--kill-on-bad-exit=0", "--wait=0")


class Training:
    """A job that trains until .end(). Importing PyTorch takes each worker seconds of CPU: a job has as few workers as show the
    fault, and trains without PyTorch where another test shows that a group of gloo survives the same loss."""

    def __init__(self, slurm, *options, nodes=4, workers=1, trains="resume_light.py", how=()):
        self.slurm = slurm
        self.job = slurm.start(f"--nproc-per-node={workers}", "--shutdown-timeout=3s", "--heartbeat=10s", *options,
                               program(trains), slurm.file("checkpoint"), slurm.file("end"), *how, srun=(f"-N{nodes}", *STAY))

    def __enter__(self):
        self.job.__enter__()
        return self

    def __exit__(self, *exc):
        self.job.__exit__(*exc)

    def lines(self, key):
        return [line for line in json_lines(self.job.out.rpartition("\n")[0]) if key in line]

    def begun(self, count):
        """Wait until `count` workers have trained a step, in all rounds together; return their lines."""
        until(lambda: self.job.rc is not None or len(self.lines("first")) >= count, LIMIT,
              lambda: f"{count} workers train: {self.job.out}{self.job.err}")
        assert self.job.rc is None, self.job.out + self.job.err
        return self.lines("first")

    def end(self):
        self.slurm.file("end", "")
        self.job.wait(LIMIT)
        return self.lines("steps")


def assert_resumed(training, before, world):
    """Assert that the last round has `world` ranks, began where the previous one had been, and ended well."""
    begun = training.begun(before + world)[before:]
    assert sorted(line["rank"] for line in begun) == list(range(world)), begun
    assert {line["world"] for line in begun} == {world}
    assert {line["first"] for line in begun} != {0} and len({line["first"] for line in begun}) == 1
    done = training.end()
    assert sorted(line["rank"] for line in done) == list(range(world)), training.job.out + training.job.err
    assert all(line["equal"] and line["world"] == world for line in done)
    assert len({line["steps"] for line in done}) == 1
    return begun


def test_a_worker_is_killed(slurm):
    with Training(slurm, "--max-restarts=1", nodes=2, workers=2, trains="resume_torch.py", how=["--ddp"]) as training:
        victim = [line for line in training.begun(4) if line["rank"] == 3][0]
        worker = [p for p in slurm.cluster.processes(victim["node"])
                  if "resume_torch" in p.cmdline and not os.path.basename(p.cmdline.split()[0]).startswith("ddrun")][-1]
        slurm.cluster.kill(victim["node"], worker.pid)
        begun = assert_resumed(training, 4, 4)
        assert {line["restarts"] for line in begun} == {1}
        assert training.job.rc == 0, training.job.err


def test_an_agent_is_killed(slurm):
    with Training(slurm, "--nnodes=2:4") as training:
        training.begun(4)
        _, agent = slurm.guardian_and_agent("node3")
        slurm.cluster.kill("node3", agent.pid)
        assert_resumed(training, 4, 3)
        assert "lost node3" in training.job.err


def command_for_the_exit_code():
    """Return the lines of docs/slurm.md that end a script with the exit code of the job."""
    with open(os.path.join(HERE, "../../docs/slurm.md"), encoding="utf-8") as page:
        section = page.read().partition("## The exit code of a job that has lost a node")[2].partition("\n## ")[0]
    return "\n".join(line.strip() for line in section.splitlines() if line.startswith("    "))


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq")
@pytest.mark.parametrize("code", [0, 3])
def test_a_script_ends_with_the_code_of_a_job_that_has_lost_an_agent(slurm, code):
    waits = f'until [ -e "{slurm.place}/end" ]; do sleep 0.2; done; exit {code}'
    slurm.file("train", f'#!/bin/sh\n: >"{slurm.place}/runs.$RANK.$TORCHELASTIC_RESTART_COUNT.$WORLD_SIZE"\n{waits}\n')
    command = command_for_the_exit_code().replace("--nnodes=3:4", "--nnodes=2:3 --nproc-per-node=1")
    command = command.replace("ddrun", DDRUN, 1).replace("train.py", slurm.file("train"))
    slurm.file("batch", f"#!/bin/sh\n{command}\n")
    with slurm.popen(["sbatch", "--wait", "-N3", "--no-kill", "--output=out", "--error=err", "batch"]) as job:
        until(lambda: slurm.exists("runs.*.3", 3), LIMIT, lambda: job.out + job.err)
        _, agent = slurm.guardian_and_agent("node3")
        slurm.cluster.kill("node3", agent.pid)
        until(lambda: slurm.exists("runs.*.2", 2), LIMIT, lambda: job.out + job.err)
        slurm.file("end", "")
        assert job.wait(LIMIT).rc == code, open(slurm.file("err"), encoding="utf-8").read()


def test_the_agent_with_the_daemon_is_killed(slurm):
    """The group of gloo loses a rank and its store, and notices both."""
    with Training(slurm, "--nnodes=2:4", trains="resume_torch.py") as training:
        training.begun(4)
        _, agent = slurm.guardian_and_agent("node1")
        slurm.cluster.kill("node1", agent.pid)
        begun = assert_resumed(training, 4, 3)
        assert {line["node"] for line in begun} == {"node2", "node3", "node4"}


def test_a_spare_node_takes_the_place_of_a_crashed_one(slurm):
    with Training(slurm, "--nnodes=3:3", workers=2) as training:
        before = sorted(training.begun(6), key=lambda line: line["rank"])
        spare = ({"node1", "node2", "node3", "node4"} - {line["node"] for line in before}).pop()
        victim = before[2]["node"]  # node rank 1
        slurm.cluster.crash(victim)
        begun = sorted(assert_resumed(training, 6, 6), key=lambda line: line["rank"])
        assert [line["node"] for line in begun] == [before[0]["node"]] * 2 + [spare] * 2 + [before[4]["node"]] * 2


@pytest.mark.parametrize("victim, trains", [("node4", "resume_light.py"), ("node1", "resume_torch.py")])
def test_a_node_crashes(slurm, victim, trains):
    """No process of the node says goodbye; with node1, the store has gone as well."""
    with Training(slurm, "--nnodes=2:4", trains=trains) as training:
        training.begun(4)
        slurm.cluster.crash(victim)
        begun = assert_resumed(training, 4, 3)
        assert victim not in {line["node"] for line in begun}


@pytest.fixture
def patient(slurm_with):
    """Return a cluster whose Slurm does not give up a node while its network is cut."""
    return slurm_with(slurmd_timeout=300)


@pytest.mark.parametrize("victim", ["node3", "node1"])
def test_a_node_is_cut_off_and_comes_back(patient, victim):
    with Training(patient, "--nnodes=2:4", "--grow=now", "--rejoin-timeout=10m") as training:
        training.begun(4)
        patient.cluster.cut(victim)
        training.begun(4 + 3)
        patient.cluster.heal(victim)
        assert_resumed(training, 4 + 3, 4)


def part(cluster, one, other):
    """Cut the network between the nodes of both groups; the login node, and with it Slurm, reaches all nodes."""
    for here, there in ((one, other), (other, one)):
        for name in here:
            cluster.machines[name].net([f"route add blackhole {cluster.address(far)}/32" for far in there])


@pytest.mark.parametrize("stay, away", [(("node1", "node2"), ("node3", "node4")), (("node2", "node3", "node4"), ("node1",))])
def test_at_most_one_side_of_a_parted_network_goes_on(patient, stay, away):
    with Training(patient, "--nnodes=1:4", "--rejoin-timeout=20s") as training:
        training.begun(4)
        part(patient.cluster, stay, away)
        for name in away:
            until(lambda name=name: not patient.processes(name, "ddrun"), LIMIT, lambda: f"{name} gives up: {training.job.err}")
        begun = assert_resumed(training, 4, len(stay))
        assert {line["node"] for line in begun} == set(stay)
        assert "without a majority" in training.job.err or "no daemon" in training.job.err


class Saving(Training):
    """Ranks that save at USR1."""

    def __init__(self, slurm, *options):
        super().__init__(slurm, "--watch-nodes=1s", *options)

    def saved(self):
        return [line["node"] for line in self.lines("saved")]


@pytest.fixture
def drained(slurm):
    """drained(node, state="drain"): an administrator changes the state of a node."""
    nodes = []

    def drain(node, state="drain"):
        nodes.append(node)
        done = slurm.cluster.ctl.run(["scontrol", "update", f"nodename={node}", f"state={state}", "reason=bad DIMM"])
        assert done.rc == 0, done.err

    yield drain
    for node in nodes:
        slurm.cluster.ctl.run(["scontrol", "update", f"nodename={node}", "state=resume"])


@pytest.mark.parametrize("state", ["drain", "fail"])
def test_a_drained_node_gives_its_place_to_a_spare(slurm, drained, state):
    with Saving(slurm, "--nnodes=3:3", "--drain-signal=USR1@15s") as training:
        begun = training.begun(3)
        names = {line["node"] for line in begun}
        victim = max(names - {"node1"})
        drained(victim, state)
        again = assert_resumed(training, 3, 3)
        assert {line["node"] for line in again} == {"node1", "node2", "node3", "node4"} - {victim}
        assert {line["restarts"] for line in again} == {0} and sorted(training.saved()) == sorted(names)
        assert training.job.rc == 0 and f"{victim} is " in training.job.err and "reason: bad DIMM [root@" in training.job.err


def test_an_elastic_job_leaves_the_first_node_when_that_is_drained(slurm, drained):
    with Saving(slurm, "--nnodes=2:4", "--drain-signal=USR1@1s") as training:
        training.begun(4)
        drained("node1")
        again = assert_resumed(training, 4, 3)
        assert {line["node"] for line in again} == {"node2", "node3", "node4"} and training.job.rc == 0


def test_a_job_that_needs_a_drained_node_goes_on(slurm, drained):
    with Saving(slurm, "--drain-signal=USR1@1s") as training:
        training.begun(4)
        drained("node3")
        until(lambda: "the job stays on node3" in training.job.err, LIMIT, lambda: training.job.err)
        done = training.end()
        assert len(done) == 4 and training.saved() == [] and training.job.rc == 0


# The first rank fails in the first round of each run; in the second run, and in the last round, it waits for the test. $1: the
# directory of all nodes.
FAILS_IN_EACH_RUN = """#!/bin/sh
run=${SLURM_RESTART_COUNT:-0}
[ "$RANK" != 0 ] || echo "$DDRUN_NODES" >"$1/nodes.$run.$TORCHELASTIC_RESTART_COUNT"
until [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || [ -e "$1/end" ]; do sleep 0.2; done
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
[ "$RANK" = 0 ] || exec sleep 1000
until [ "$run" = 0 ] || [ -e "$1/fail" ]; do sleep 0.2; done
echo "ValueError: bad memory in run $run" >&2
[ "$run" != 0 ] || exit 75
exit 3
"""


def test_a_requeued_job_knows_the_node_on_which_its_last_run_failed(slurm):
    """node1 runs the daemon, so it takes part in the first round of each run."""
    def text(name):
        return open(slurm.file(name), encoding="utf-8").read() if slurm.exists(name) else ""

    slurm.file("fails", FAILS_IN_EACH_RUN)
    slurm.file("batch", f"#!/bin/sh\nexport HOME={slurm.place}\nexec srun --ntasks-per-node=1 --kill-on-bad-exit=0 {DDRUN} --nnodes=3:3 "
                        "--nproc-per-node=1 --max-restarts=1 --blame-window=1h --exit-rules=75=requeue --shutdown-timeout=3s "
                        f"{slurm.file('fails')} {slurm.place}\n")
    number = slurm.cluster.run(["sbatch", "--parsable", "-N4", "--requeue", "--open-mode=append", "--output=out", "--error=err", "batch"],
                               user=slurm.user, cwd=slurm.place).out.strip()

    def job():
        return slurm.cluster.run(["scontrol", "show", "job", "-o", number]).out + text("out") + text("err")

    until(lambda: " Restarts=1 " in job() and "JobState=PENDING" in job(), LIMIT, job)
    assert slurm.exists(".ddrun/*.charges"), job()
    slurm.cluster.run(["scontrol", "update", f"JobId={number}", "StartTime=now+5"])  # Slurm defers a requeued job
    # by 2 min; in the second of the requeue, the nodes would refuse the credentials of the next run

    def ask(what):
        ddctl = os.path.join(os.path.dirname(DDRUN), "ddctl")
        argv = ["srun", "--overlap", f"--jobid={number}", "-N1", "-n1", ddctl, what, "--format=json"]
        told = until(lambda: in_time(slurm.cluster.run(argv, user=slurm.user, cwd=slurm.place)), LIMIT, job)
        assert told.rc == 0, told.err + job()
        return json.loads(told.out)["nodes"]

    until(lambda: text("nodes.1.0").strip(), LIMIT, job)
    assert [(n["name"], n["charges"], n["left_out"]) for n in ask("blame")] == [("node1", 1, None)]
    until(lambda: len(ask("status")) == 4, LIMIT, job)  # the spare node has joined
    slurm.file("fail", "")
    until(lambda: text("nodes.1.1").strip(), LIMIT, job)
    (blamed,) = ask("blame")
    assert (blamed["name"], blamed["charges"], blamed["left_out"] is not None) == ("node1", 2, True) and "in run 1" in blamed["text"], blamed
    assert "1" in text("nodes.1.0") and "1" not in text("nodes.1.1"), job()
    slurm.file("end", "")
    until(lambda: not slurm.cluster.run(["squeue", "-h"]).out, LIMIT, job)
    assert "left node1 out of this round (2 failures within --blame-window" in text("err"), job()
    assert not slurm.exists(".ddrun/*.charges"), "the job has succeeded"
