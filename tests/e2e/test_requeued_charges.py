"""A job that the scheduler requeues knows the nodes on which failures began in its earlier runs (docs/restarts.md)."""

import json
import os
import subprocess
import time

import pytest

from support import DDRUN, Job, clean_env, lines_with, program, some_line

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

ME = os.uname().nodename
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": ME, "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_JOB_NODELIST": ME, "SLURMD_NODENAME": ME, "SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


class Requeued:
    """A job of one node in a step of Slurm. Each run gives the report, and keeps the home directory."""

    def __init__(self, tmp_path):
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.file = self.home / ".ddrun" / "slurm.7101.0.charges"
        self.report = tmp_path / "report.json"
        self.err = ""

    def run(self, restarts, code=3, job="7101", options=()):
        """Run the job once more; all its rounds fail with the code. Return the charges of the report: {node: number}."""
        env = clean_env(**STEP, SLURM_JOB_ID=job, **({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}))
        return self.run_in(env, code, options)

    def run_in(self, env, code=3, options=(), name="train"):
        with Job("--nproc-per-node=1", f"--report={self.report}", *options, "sh", "-c", 'echo "ValueError: bad memory" >&2; exit $CODE', name,
                 env={**env, "CODE": str(code)}, home=str(self.home)) as ran:
            assert ran.wait() == code, ran.err
            self.err = ran.err
            ran.assert_nothing_left()
        return {c["node"]: c["charges"] for c in json.loads(self.report.read_text())["charges"]}

    def left(self):
        return sorted(os.listdir(self.home / ".ddrun"))


@pytest.fixture
def requeued(tmp_path):
    return Requeued(tmp_path)


def test_charges_outlive_a_requeue_until_the_job_succeeds(requeued):
    assert requeued.run(0) == {ME: 1}
    assert requeued.file.stat().st_mode & 0o777 == 0o600 and requeued.left() == [requeued.file.name]
    assert requeued.run(1) == {ME: 2}
    assert requeued.run(2, options=["--max-restarts=1"]) == {ME: 4}
    assert requeued.run(3, code=0) == {} and requeued.left() == []
    assert requeued.run(4) == {ME: 1}
    assert lines_with(requeued.err, "failures charged to nodes") == []


def test_only_a_later_run_of_the_same_job_takes_charges(requeued):
    assert requeued.run(0) == {ME: 1}
    assert requeued.run(1, job="7102") == {ME: 1}
    assert requeued.run(0) == {ME: 1}, "Slurm has begun to count jobs anew"


@pytest.fixture
def pbs_env(tmp_path):
    (tmp_path / "nodes").write_text(f"{ME}\n")
    return clean_env(PBS_JOBID="7101.srv", PBS_JOBCOOKIE="11", PBS_TASKNUM="1", PBS_NODENUM="0", PBS_NODEFILE=str(tmp_path / "nodes"))


def test_any_run_of_a_job_of_pbs_takes_charges(requeued, pbs_env):
    assert requeued.run_in(pbs_env) == {ME: 1}
    (name,) = requeued.left()
    assert name.startswith("pbs.7101.srv.") and name.endswith(".charges")
    assert requeued.run_in({**pbs_env, "PBS_JOBCOOKIE": "22"}) == {ME: 2} and requeued.left() == [name]
    assert requeued.run_in(pbs_env, code=0) == {} and requeued.left() == []


SCRIPTS = {"pbs": lambda env, n: {**env, "PBS_JOBCOOKIE": str(11 + n)},
           "slurm": lambda _, n: clean_env(SLURM_JOB_ID="7101", SLURM_JOB_NODELIST=ME, SLURMD_NODENAME=ME, SLURM_RESTART_COUNT=str(n))}


@pytest.mark.parametrize("scheduler", SCRIPTS)
def test_a_ddrun_that_succeeds_leaves_charges_of_another_one_in_the_same_script(requeued, pbs_env, scheduler):
    """The script prepares, and then trains; the job is requeued twice after a failure of the training."""
    for run in range(3):
        env = SCRIPTS[scheduler](pbs_env, run)
        assert requeued.run_in(env, code=0, name="prepare") == {}
        assert requeued.run_in(env) == {ME: run + 1}
    assert len(requeued.left()) == 1


def test_two_ddruns_of_a_job_at_once_keep_charges_of_their_own(requeued, pbs_env, tmp_path):
    go = tmp_path / "go"
    with Job("--nproc-per-node=1", f"--report={tmp_path / 'other.json'}", "sh", "-c", f"echo up; until [ -e {go} ]; do sleep 0.1; done; exit 3",
             env=pbs_env, home=str(requeued.home)) as other:
        other.line("up")
        assert requeued.run_in(pbs_env) == {ME: 1}
        go.touch()
        assert other.wait() == 3, other.err
    assert len(requeued.left()) == 2
    assert requeued.run_in(pbs_env) == {ME: 2}


def test_an_id_names_a_ddrun_whose_arguments_differ_from_run_to_run(requeued, pbs_env):
    assert requeued.run_in(pbs_env, options=["--rdzv-id=train"], name="step 100") == {ME: 1}
    assert requeued.left() == ["pbs.7101.srv.train.charges"]
    assert requeued.run_in(pbs_env, options=["--rdzv-id=train"], name="step 200") == {ME: 2}


def test_two_failures_in_two_runs_are_two_within_the_window(requeued):
    requeued.run(0, options=["--blame-window=1h"])
    requeued.run(1, options=["--blame-window=1h", "--max-restarts=1"])
    assert some_line(requeued.err, f"{ME} stays in the job", "2 failures within --blame-window"), requeued.err


def test_the_time_between_the_runs_counts(requeued):
    requeued.run(0, options=["--blame-window=1h"])
    mark, version, written, rest = requeued.file.read_text().split(" ", 3)
    assert (mark, version) == ("ddrun-charges", "1") and abs(int(written) / 1000 - time.time()) < 3600
    requeued.file.write_text(" ".join((mark, version, str(int(written) - 3700 * 1000), rest)))
    assert requeued.run(1, options=["--blame-window=1h", "--max-restarts=1"]) == {ME: 3}
    assert lines_with(requeued.err, "stays") == [], "of three failures, only two in this run are within the window"


def other_owner(file):
    os.chown(file, 12345, -1)


DAMAGES = {
    "text": (lambda file: file.write_text("hello\n"), "is damaged"),
    "empty": (lambda file: file.write_text(""), "is damaged"),
    "line": (lambda file: file.write_text(file.read_text() + "x\n"), "is damaged"),
    "long": (lambda file: file.write_text("x" * (1 << 20)), "is larger than"),
    "readable by others": (lambda file: file.chmod(0o644), "accessible to other users"),
    "of another user": (other_owner, "belongs to uid 12345"),
    "a link": (lambda file: file.rename(file.with_suffix(".real")).parent.joinpath(file.name).symlink_to(file.with_suffix(".real")), "cannot open"),
    "a directory": (lambda file: (file.unlink(), file.mkdir()), "is not a regular file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_cannot_be_used_costs_one_warning(requeued, damage):
    how, said = DAMAGES[damage]
    if how is other_owner and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    requeued.run(0)
    how(requeued.file)
    assert requeued.run(1) == {ME: 1}
    (warning,) = lines_with(requeued.err, "failures charged to nodes")
    assert "ignoring the failures charged to nodes in the last run" in warning and said in warning and requeued.file.name in warning


@pytest.mark.parametrize("options", [[], ["--blame-window=1h"]])
def test_a_home_directory_that_cannot_be_written_costs_a_warning_if_it_matters(requeued, options):
    (requeued.home / ".ddrun").write_text("not a directory\n")
    assert requeued.run(0, options=options) == {ME: 1}
    warnings = lines_with(requeued.err, "cannot save the failures charged to nodes (--blame-window) for the next run of this job", "cannot open directory")
    assert len(warnings) == len(options), requeued.err


def test_a_home_directory_that_hangs_delays_a_requeued_job_but_neither_blocks_nor_ends_it(requeued, tmp_path):
    library, held = tmp_path / "held_charges.so", tmp_path / "held"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("held_charges.c"), "-ldl"], check=True)
    assert requeued.run(0) == {ME: 1}
    held.touch()
    env = clean_env(**STEP, SLURM_JOB_ID="7101", SLURM_RESTART_COUNT="1", LD_PRELOAD=str(library), HELD_CHARGES=str(held))
    assert requeued.run_in(env) == {ME: 1}
    (warning,) = lines_with(requeued.err, "failures charged to nodes")
    assert "ignoring the failures charged to nodes in the last run" in warning and "the home directory does not respond" in warning
