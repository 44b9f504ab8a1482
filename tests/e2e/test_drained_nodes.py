"""Nodes that the scheduler takes out of service while the job runs. Stand-ins replace scontrol and pbsnodes; a file decides what
they say. tests/e2e/test_slurm_recovery.py and test_openpbs.py do the same with real schedulers."""

import json
import os
import signal

import pytest

from support import Job, clean_env, json_lines, run, some_line, until
from test_ddctl_job import ddctl

SAVES = """
import json, os, signal, sys, time
rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
code = int(sys.argv[2])
def say(**what):
    os.write(1, (json.dumps({"rank": int(rank), "pid": os.getpid(), "restart": int(restart), **what}) + "\\n").encode())
def save(number, frame):
    say(saved=True)
    if code:
        os._exit(code)
signal.signal(signal.SIGUSR1, save)
say(ready=os.environ["TORCHELASTIC_RUN_ID"])
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


class Scheduler:
    """Stand-ins for the commands of Slurm and PBS: they print tmp_path/answer, and count themselves in tmp_path/asked."""

    def __init__(self, tmp_path):
        self.path = tmp_path
        self.states = {f"sim{n}": "" for n in (1, 2, 3)}
        folder = tmp_path / "bin"
        folder.mkdir()
        script = f'#!/bin/sh\necho "${{0##*/}} $*" >> {tmp_path}/asked\n. {tmp_path}/answer\n'
        for name in ("scontrol", "pbsnodes"):
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        self.bin = str(folder)

    def env(self, **job):
        return clean_env(PATH=f"{self.bin}:{os.environ['PATH']}", **job)

    def answers(self, script):
        (self.path / "answer.new").write_text(script + "\n")
        os.rename(self.path / "answer.new", self.path / "answer")

    def slurm(self, **states):
        self.answers("\n".join(f"echo 'NodeName={n} Arch=x86_64 State={states.get(n, 'ALLOCATED')} Weight=1"
                               f"{' Reason=bad DIMM [root@now]' if 'DRAIN' in states.get(n, '') else ''}'" for n in self.states))

    def pbs(self, **states):
        self.answers("\n".join(f"printf '{n}\\n     state = {states.get(n, 'job-busy')}\\n     comment = fan\\n\\n'" for n in self.states))

    def asked(self):
        path = self.path / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def asked_again(self):
        """Wait for two further questions: the answer to the first of them has been read."""
        n = len(self.asked()) + 2
        until(lambda: len(self.asked()) >= n, say="the next question")


@pytest.fixture
def scheduler(tmp_path):
    return Scheduler(tmp_path)


class Training(Job):
    """A job on simulated nodes whose workers say 'saved' at USR1 and exit with `code`, if it is not 0."""

    def __init__(self, scheduler, *options, code=0, env=None):
        script = scheduler.path / "saves.py"
        script.write_text(SAVES)
        self.go = scheduler.path / "go"
        self.seen = ""
        super().__init__("--simulate-nodes=3", "--nproc-per-node=1", "--watch-nodes=1s", "--shutdown-timeout=30s", *options,
                         str(script), str(self.go), str(code), env=env or scheduler.env(SLURM_JOB_ID="77"))

    def lines(self, key):
        return [line for line in json_lines(self.seen) if key in line]

    def wait_for(self, key, count):
        while len(self.lines(key)) < count:
            self.seen += self.line("\n")
        return self.lines(key)

    def ctl(self, *args, **more):
        return ddctl(args[0], f"--job={self.lines('ready')[0]['ready']}", *args[1:], **more)

    def status(self):
        return json.loads(self.ctl("status", "--format=json"))

    def nodes(self):
        """The nodes of the round, in the order of their ranks."""
        return [n["name"] for n in self.status()["nodes"] if "node_rank" in n]

    def finish(self):
        self.go.touch()
        assert self.wait() == 0, self.err
        self.assert_nothing_left()


def victim(job):
    """The last node of the round, which does not lead."""
    return job.nodes()[-1]


@pytest.mark.parametrize("code", [0, 3], ids=["goes on", "exits"])
def test_a_drained_node_gives_its_place_to_a_spare_after_a_checkpoint(scheduler, code):
    """The workers save before they are stopped, or exit by themselves. No restart is used: none is allowed."""
    scheduler.slurm()
    wait = "15s" if code == 0 else "1h"
    with Training(scheduler, "--nnodes=2:2", f"--drain-signal=USR1@{wait}", code=code) as job:
        job.wait_for("ready", 2)
        until(lambda: len(job.status()["nodes"]) == 3)
        first, node = job.nodes()
        spare = ({"sim1", "sim2", "sim3"} - {first, node}).pop()
        scheduler.slurm(**{node: "MIXED+DRAIN"})
        job.wait_for("ready", 4)
        assert len(job.lines("saved")) == 2 and not any(line["restart"] for line in job.lines("ready"))
        until(lambda: job.status()["state"] == "running")
        s = job.status()
        assert (s["round"], s["restarts"], job.nodes()) == (1, 0, [first, spare])
        marks = {n["name"]: n.get("mark") for n in s["nodes"]}
        assert marks == {first: None, spare: None, node: "being drained by Slurm (reason: bad DIMM [root@now])"}
        assert some_line(job.ctl("status"), node, "being drained by Slurm")
        assert some_line(job.ctl("events"), node, "being drained by Slurm")
        assert some_line(job.ctl("blame"), node, " 0 ", "[left out: being drained by Slurm")
        scheduler.slurm()
        until(lambda: not any("mark" in n for n in job.status()["nodes"]))
        assert job.nodes() == [first, spare]
        job.finish()
    assert some_line(job.err, f"{node} is being drained by Slurm (reason: bad DIMM [root@now])")
    assert some_line(job.err, "sending SIGUSR1 to all workers", f"without {node}")
    assert some_line(job.err, f"{node} is in service again")
    assert set(scheduler.asked()) == {"scontrol show node -o sim[1-3]"}


def test_an_elastic_job_becomes_smaller_and_pbs_is_asked_too(scheduler):
    scheduler.pbs()
    with Training(scheduler, "--nnodes=2:3", "--drain-signal=USR1@1s", env=scheduler.env(PBS_JOBID="77.head")) as job:
        job.wait_for("ready", 3)
        node = victim(job)
        scheduler.pbs(**{node: "job-busy,offline"})
        job.wait_for("ready", 5)
        until(lambda: job.status()["state"] == "running")
        assert (len(job.nodes()), job.status()["restarts"]) == (2, 0) and node not in job.nodes()
        job.finish()
    assert some_line(job.err, f"{node} is taken offline by PBS (reason: fan)")
    assert set(scheduler.asked()) == {"pbsnodes sim1 sim2 sim3"}


def test_a_job_that_needs_all_its_nodes_is_only_warned(scheduler, tmp_path):
    scheduler.slurm()
    report = tmp_path / "report"
    with Training(scheduler, "--drain-signal=USR1@1s", f"--report={report}") as job:
        job.wait_for("ready", 3)
        node = victim(job)
        scheduler.slurm(**{node: "ALLOCATED+MAINTENANCE"})
        until(lambda: "put into maintenance by Slurm" in job.ctl("status"))
        scheduler.asked_again()
        assert (job.status()["round"], job.status()["state"]) == (0, "running")
        job.finish()
        assert not json_lines(job.out) or not [line for line in json_lines(job.out) if "saved" in line]
    assert some_line(job.err, f"the job stays on {node}")
    assert [(w["node"], w["text"]) for w in json.loads(report.read_text())["warnings"]] == [
        (node, "put into maintenance by Slurm")]


def test_without_a_signal_the_next_restart_leaves_the_node(scheduler):
    scheduler.slurm()
    with Training(scheduler, "--nnodes=2:2", "--max-restarts=1") as job:
        job.wait_for("ready", 2)
        until(lambda: len(job.status()["nodes"]) == 3)
        first, node = job.nodes()
        scheduler.slurm(**{node: "DRAINING*"})
        until(lambda: "being drained" in job.ctl("status"))
        scheduler.asked_again()
        assert job.nodes() == [first, node]
        os.kill(job.lines("ready")[0]["pid"], signal.SIGKILL)
        job.wait_for("ready", 4)
        assert node not in job.nodes() and job.status()["restarts"] == 1
        job.finish()
    assert some_line(job.err, f"the next restart leaves out {node}")


@pytest.mark.parametrize("script, why", [
    ("exit 3", "exit code 3"),
    ("echo slurm_load_node error: Unable to contact slurm controller; exit 1", "Unable to contact"),
    ("head -c 200000 /dev/urandom", "does not describe all nodes"),
    ("echo NodeName=sim1 State=DOWN", "does not describe all nodes"),
    ("head -c 100000000 /dev/zero", "does not describe all nodes"),
], ids=["fails", "has no controller", "garbage", "incomplete", "endless"])
def test_a_question_that_fails_changes_nothing(scheduler, script, why):
    scheduler.answers(script)
    with Training(scheduler, "--nnodes=2:3", "--drain-signal=USR1@1s") as job:
        job.wait_for("ready", 3)
        scheduler.asked_again()
        s = job.status()
        assert (s["round"], s["state"]) == (0, "running") and not any("mark" in n for n in s["nodes"])
        node = victim(job)
        scheduler.slurm(**{node: "DRAIN"})  # later answers count
        until(lambda: node not in job.nodes())
        job.wait_for("ready", 5)
        scheduler.answers(script)  # a mark stays until an answer without it
        scheduler.asked_again()
        assert [n["name"] for n in job.status()["nodes"] if "mark" in n] == [node]
        job.finish()
    assert some_line(job.err, "--watch-nodes: cannot ask Slurm", why)
    assert 2 <= job.err.count("cannot ask Slurm") < len(scheduler.asked()) - 1, "each series of failures is reported once"


def test_a_question_that_hangs_is_killed_with_the_job(scheduler):
    scheduler.answers("sleep 1000000 & wait")
    with Training(scheduler, "--nnodes=2:3") as job:
        job.wait_for("ready", 3)
        until(scheduler.asked)
        assert (job.status()["round"], job.status()["state"]) == (0, "running")
        job.finish()


def test_a_missing_command_changes_nothing(scheduler):
    with Training(scheduler, env=clean_env(PBS_JOBID="77.head", PATH="/usr/bin:/bin")) as job:
        job.wait_for("ready", 3)
        said = job.errors("cannot ask PBS")
        job.finish()
    assert some_line(said, "--watch-nodes: cannot ask PBS", "pbsnodes", "not found")


def test_watch_nodes_has_no_effect_without_a_scheduler():
    job = run("--nproc-per-node=1", "--watch-nodes=1s", "true")
    assert job.p.returncode == 0 and "watch-nodes" not in job.err


@pytest.mark.parametrize("value", ["USR1", "TERM@60", "USR1@", "USR1@2d", "60"])
def test_a_signal_that_would_end_the_job_is_refused(value):
    job = run(f"--drain-signal={value}", "true")
    assert job.p.returncode == 2 and "expected USR1@TIME or USR2@TIME" in job.err
