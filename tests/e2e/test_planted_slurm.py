"""The report about faults planted in jobs of gloo and of MPI under a real Slurm: it names the rank, its node and the cause, and no
other. test_slurm.py has a rank that exceeds the memory of its step."""

import json
import os
import shutil

import pytest

from support import BUILD, DDRUN, PYTHON, program, some_line, until, with_frames, with_torch
from test_planted_mpi import HANG as HANG_OF_MPI
from test_planted_mpi import mpi  # noqa: F401
from test_python import package_env
from test_slurm import LIGHT, LIMIT, no_memory_limits, slurm, slurm_with  # noqa: F401
from test_stacks import tool_path

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

HANG = ["--hang-timeout=10s", "--shutdown-timeout=2s", "--stacks-timeout=120s"]


def faulty(slurm, fault, rank, shape, *options):  # noqa: F811
    """Run a job of (nodes, ranks on each); return it and its report."""
    nodes, ranks = shape
    report = slurm.file("report.json")
    done = slurm.run(f"--nproc-per-node={ranks}", f"--report={report}", *options, program("faulty.py"), fault, str(rank), srun=(f"-N{nodes}",))
    assert done.rc != 0, done.err
    with open(report, encoding="utf-8") as f:
        return done, json.load(f)


def assert_culprit(done, found, rank, node, known):
    """Assert that the report names this rank only."""
    culprit = found["culprit"]
    assert (culprit["ranks"], culprit["node"], culprit["blame"]) == (str(rank), node, "worker"), done.err
    assert culprit["why"].startswith(f"rank {rank} on {node}, "), done.err
    assert found["known_cause"] == known, done.err
    assert some_line(done.err, f"  culprit: rank {rank} on {node}, "), done.err


@with_torch
def test_the_rank_that_raises_an_exception_among_eight_is_the_culprit(slurm):  # noqa: F811
    done, found = faulty(slurm, "exception", 5, (4, 2))
    assert_culprit(done, found, 5, "node3", None)
    by_itself = [f for f in found["failures"] if not f["cascade"]]
    assert [(f["rank"], f["node"]) for f in by_itself] == [(5, "node3")], done.err
    assert some_line(done.err, "error: rank 5 on node3 failed: ", "ValueError: boom"), done.err


@with_torch
@with_frames
@pytest.mark.parametrize("fault, known, why", [
    ("sleep", "hang", "which was in <lambda>, faulty.py:"),
    ("stop", "hang", "which was stopped by a signal or a debugger while "),
    ("gather", "hang", "which waits in all_gather, faulty.py:"),
    ("stuck-loader", "dataloader-worker-stuck", "which waits for a DataLoader process, faulty.py:"),
])
def test_the_rank_for_which_the_others_wait_is_the_culprit(slurm, fault, known, why):  # noqa: F811
    done, found = faulty(slurm, fault, 2, (2, 2), *HANG)
    assert done.rc in (134, 137), done.err
    assert_culprit(done, found, 2, "node2", known)
    assert why in found["culprit"]["why"] and "ranks 0-1,3 wait" in found["culprit"]["why"], done.err


def test_a_job_that_needs_a_node_with_a_broken_health_check_names_it(slurm):  # noqa: F811
    check = "case $(hostname) in node3) echo uncorrectable ECC errors on GPU 1; exit 1;; esac"
    done = slurm.run("--nproc-per-node=2", f"--health-check={check}", LIGHT)
    assert done.rc == 1, done.err
    assert some_line(done.err, "error: ", "node3", "uncorrectable ECC errors on GPU 1"), done.err
    assert not any(some_line(done.err, "error: ", f"node{n} ", "cannot be used") for n in (1, 2, 4)), done.err
    assert done.out == ""


def faulty_mpi(slurm, mpi, fault, rank, srun, *options):  # noqa: F811
    """Run a job of an MPI program with two ranks on each node; return it and its report."""
    how, made = mpi
    report = slurm.file("report.json")
    done = slurm.run(how, "--nproc-per-node=2", f"--report={report}", *options, shutil.copy(made, slurm.file("faulty")), fault, str(rank),
                     srun=srun, env={"OMPI_MCA_mpi_yield_when_idle": "1"})
    assert done.rc != 0, done.err
    with open(report, encoding="utf-8") as f:
        return done, json.load(f)


def test_the_rank_of_an_mpi_program_that_fills_a_file_system_is_the_culprit(slurm, mpi):  # noqa: F811
    done, found = faulty_mpi(slurm, mpi, "full", 5, ("-N4",))
    assert_culprit(done, found, 5, "node3", "disk-full")
    assert [(f["rank"], f["node"]) for f in found["failures"] if not f["cascade"]] == [(5, "node3")], done.err


@pytest.mark.skipif(no_memory_limits() is not None, reason=str(no_memory_limits()))
def test_the_rank_of_an_mpi_program_that_exceeds_the_memory_of_its_step_is_the_culprit(slurm_with, mpi):  # noqa: F811
    names = [f"mpimem{os.getpid()}-{n}" for n in (1, 2)]
    done, found = faulty_mpi(slurm_with(nodes=2, names=names, memory=True), mpi, "memory", 2, ("-N2", "--mem=400"))
    assert_culprit(done, found, 2, names[1], "oom-killer")
    assert [(f["rank"], f["node"]) for f in found["failures"] if not f["cascade"]] == [(2, names[1])], done.err


@pytest.mark.parametrize("fault, why", [
    ("stop", "which was stopped by a signal"),
    ("sleep", "which was in sleep, mpi_faulty.c:"),
])
def test_the_rank_of_an_mpi_program_for_which_the_others_wait_is_the_culprit(slurm, mpi, tmp_path, fault, why):  # noqa: F811
    native = []
    if fault == "sleep":
        tool_path(tmp_path / "bin", "eu-stack")  # skips the test where that does not work
        native = ["--stacks-native"]
    done, found = faulty_mpi(slurm, mpi, fault, 2, ("-N2",), *HANG_OF_MPI, *native)
    assert done.rc in (134, 137), done.err
    assert_culprit(done, found, 2, "node2", "hang")
    assert why in found["culprit"]["why"], done.err


def test_the_node_whose_steps_take_ten_times_as_long_is_the_straggler(slurm):  # noqa: F811
    report = slurm.file("report.json")
    for name in ("slow", "fail"):
        slurm.file(name, "")
    python = ("env", f"PYTHONPATH={package_env()['PYTHONPATH']}", "PYTHONDONTWRITEBYTECODE=1", f"PATH={BUILD}:{os.environ['PATH']}", PYTHON)
    with slurm.start("--nproc-per-node=2", f"--report={report}", *python, program("steps.py"), "marked", slurm.place, srun=("-N3",)) as job:
        until(lambda: some_line(job.err, "straggler: rank", "on node2") or job.rc is not None, limit=LIMIT, say="a straggler")
        slurm.file("end", "")
        done = job.wait(LIMIT)
    assert done.rc == 3, done.err
    with open(report, encoding="utf-8") as f:
        found = json.load(f)
    assert {s["node"] for s in found["stragglers"]} == {"node2"}, done.err
    assert {s["rank"] for s in found["stragglers"]} <= {2, 3}, done.err
