"""Marked steps: the node that holds up the others is named, and no other (docs/health.md)."""

import json
import os
import re
import subprocess

import pytest

from support import BUILD, DDRUN, PYTHON, lines_with, program, some_line, until, with_torch
from test_ddctl_job import Running
from test_python import package_env

NODES = ("--simulate-nodes=3", "--nproc-per-node=2")
pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


class Training(Running):
    """A job of three nodes that runs steps.py; touch(name) creates the file that it looks for."""

    def __init__(self, tmp_path, how, *files, options=(), steps=()):
        self.folder = tmp_path
        for name in files:
            self.touch(name)
        python = ("env", f"PYTHONPATH={package_env()['PYTHONPATH']}", f"PATH={BUILD}:{os.environ['PATH']}", PYTHON)
        super().__init__(tmp_path, *NODES, "--straggler-interval=0", f"--report={tmp_path}/report.json", *options, workers=6,
                         command=(*python, program("steps.py"), how, str(tmp_path), *steps))

    def touch(self, name):
        (self.folder / name).touch()

    def stragglers(self):
        return self.status().get("steps", {}).get("stragglers", [])

    def events(self):
        return [e for e in map(json.loads, self.ctl("events", "--format=json").splitlines()) if e["event"].startswith("straggler")]

    def ends(self, code=0):
        self.touch("end")
        assert self.wait() == code, self.err
        self.assert_nothing_left()
        return json.loads((self.folder / "report.json").read_text())["stragglers"]


def slow_node(job):
    """The name of the node with node rank 1, and its ranks."""
    node, = [n for n in job.status()["nodes"] if n["node_rank"] == 1]
    return node["name"], {node["first_rank"], node["first_rank"] + 1}


@pytest.mark.parametrize("how", ["marked", pytest.param("gloo", marks=with_torch)])
def test_the_node_whose_steps_take_ten_times_as_long_is_named_and_no_other(tmp_path, how):
    with Training(tmp_path, how, "slow", "fail") as job:
        name, ranks = slow_node(job)
        until(lambda: {g["rank"] for g in job.stragglers()} == ranks)
        assert {g["node"] for g in job.stragglers()} == {name}
        text = job.ctl("status")
        assert some_line(text, "straggler: rank", f"on {name}", "waits not counted")
        assert "no straggler" not in text and job.status()["step"] > 0
        assert any(int(line.split()[1]) > 0 for line in job.ctl("metrics").splitlines() if line.startswith("ddrun_step "))
        assert [(e["event"], e["node"]) for e in job.events()] == [("straggler", name)], "one event for both ranks"
        found = job.ends(3)
        assert [g["node"] for g in found] == [name] and found[0]["rank"] in ranks and found[0]["to"] is None
        assert len(lines_with(job.err, "  straggler: rank", f"on {name}")) == 1, "in the report"
        assert len(lines_with(job.err, "ddrun", "straggler: rank", f"on {name}")) == 1, "when it was found"
        again = subprocess.run([os.path.join(BUILD, "ddctl"), "report", f"{tmp_path}/report.json"], capture_output=True, text=True, check=False)
        assert some_line(again.stdout, "straggler: rank", f"on {name}"), again


def test_recovery_of_a_straggler_publishes_one_event(tmp_path):
    with Training(tmp_path, "marked", "slow") as job:
        name, _ = slow_node(job)
        until(job.stragglers)
        (tmp_path / "slow").unlink()
        until(lambda: not job.stragglers())
        assert "no straggler" in job.ctl("status")
        until(lambda: [e["event"] for e in job.events()] == ["straggler", "straggler-over"])
        shown = job.ctl("events")
        assert some_line(shown, "Z  straggler: rank", f"on {name}") and some_line(shown, "Z  no longer a straggler: ", f"on {name}"), shown
        assert {e["node"] for e in job.events()} == {name}
        found = job.ends()
        assert len(found) == 1 and found[0]["to"] > found[0]["from"]
        assert some_line(job.err, "no longer a straggler", f"on {name}")


def test_step_and_step_time_of_each_rank_are_in_the_status_and_in_top(tmp_path):
    with Training(tmp_path, "marked") as job:
        def far():
            workers = job.status()["workers"]
            return workers if len(workers) == 6 and all(w.get("step", 0) >= 20 for w in workers) else None
        workers = until(far)
        assert [w["rank"] for w in workers] == list(range(6)) and all(w["step_seconds"] > 0 for w in workers)
        assert "each" not in job.status()["steps"]
        shown = json.loads(job.ctl("top", "--format=json"))
        assert all(now["step"] >= then["step"] and now["step_seconds"] > 0 for now, then in zip(shown["workers"], workers))

        def complete():  # without the last lines of an agent that is slow to answer
            text = job.ctl("top", "--once")
            assert re.search(r"^ +RANK +NODE +STATE .* STEP +T/STEP +LAST LINE", text, re.M), text
            return len(re.findall(r"^ +[0-5]  sim[1-3] +running .* \d+ +[\d.]+m?s  ready ", text, re.M)) == 6
        until(complete, say="the last lines of all ranks")
        job.ends()


@pytest.mark.parametrize("how, files", [("marked", ()), ("computes", ()), ("sleeps", ("slow",))])
def test_no_node_is_named_where_none_is_slower_or_where_nothing_shows_which(tmp_path, how, files):
    """A rank that sleeps uses no processor time: without marks of its waits it looks like those that wait for it."""
    with Training(tmp_path, how, *files) as job:
        until(lambda: job.status().get("steps", {}).get("ranks") == 6 and job.status()["step"] >= 60)
        assert job.events() == [] and "no straggler" in job.ctl("status")
        assert job.ends() == []


def test_programs_that_mark_no_steps_have_none_in_the_status(tmp_path):
    with Running(tmp_path, *NODES, workers=6) as job:
        assert "steps" not in job.status() and "step" not in job.ctl("status") and "STEP" not in job.ctl("top", "--once")
        assert all("step" not in w for w in job.status()["workers"])
        job.finish()
