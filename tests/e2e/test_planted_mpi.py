"""The report about faults planted in a real MPI program: it names the rank, its node and the cause, and no other."""

import json
import os
import shutil
import subprocess

import pytest

from support import DDRUN, PYTHON, Job, built_with, clean_env, program, run, some_line, with_frames, with_torch
from test_hang import hung
from test_mpi import KINDS, PYTHON_OF_MPI4PY, needs_mpi4py
from test_stacks import tool_path

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

HANG = ["--hang-timeout=10s", "--shutdown-timeout=2s", "--stacks-timeout=120s", "--heartbeat=60s"]
HUNG = "no output, heartbeat, I/O or network traffic for 10 s; processor time does not count under MPI"


@pytest.fixture(scope="module", params=sorted(KINDS))
def mpi(request, tmp_path_factory):
    """Return (--mpi=HOW, program) for each MPI that is installed."""
    kind = request.param
    compiler = shutil.which(f"mpicc.{kind}")
    if compiler is None:
        pytest.skip(f"no mpicc.{kind} on this machine (Debian: libmpich-dev, libopenmpi-dev)")
    if kind == "openmpi" and not built_with("PMIX"):
        pytest.skip("ddrun was built without libpmix (Debian: libpmix-dev)")
    made = str(tmp_path_factory.mktemp("mpi") / f"faulty.{kind}")
    subprocess.run([compiler, "-g", "-O1", "-o", made, program("mpi_faulty.c")], check=True)
    return f"--mpi={KINDS[kind]}", made


def faulty(mpi, tmp_path, fault, rank, *options, before=(), hangs=None, **variables):  # pylint: disable=redefined-outer-name
    """Run a job in which this rank fails; return it and its report. before: a command prefix. hangs: the clock of a job that
    hangs."""
    how, made = mpi
    report = tmp_path / "report.json"
    # Open MPI's ranks give way to each other: there are more of them than processors
    env = clean_env(DDRUN_STACKS="auto", OMPI_MCA_mpi_yield_when_idle="1", **variables)
    args = [how, "--simulate-nodes=2", f"--report={report}", *options, made, fault, str(rank)]
    job = hang(hangs, *args, env=env) if hangs else run(*args, env=env, before=before)
    return job, json.loads(report.read_text())


def hang(clock, *args, env):
    """Run a job that hangs after it has printed "ready". Ranks that wait use all processors, so the clock goes faster then."""
    with Job(*HANG, *args, env={**env, **clock.env}) as job:
        job.line("ready")
        said = hung(clock, job)
        job.wait()
        job.assert_nothing_left()
        job.err = said + job.err
        return job


def assert_culprit(job, found, rank, node, known):
    """Assert that the report names this rank only."""
    culprit = found["culprit"]
    assert (culprit["ranks"], culprit["node"], culprit["blame"]) == (str(rank), node, "worker"), job.err
    assert culprit["why"].startswith(f"rank {rank} on {node}, "), job.err
    assert found["known_cause"] == known, job.err


@pytest.mark.parametrize("fault, code, known", [("abort", 42, "mpi-abort"), ("exit7", 7, None)])
def test_a_rank_that_ends_among_eight_is_the_culprit(mpi, tmp_path, fault, code, known):
    job, found = faulty(mpi, tmp_path, fault, 5, "--nproc-per-node=4")
    assert job.p.returncode == code, job.err
    assert_culprit(job, found, 5, "sim2", known)
    assert (found["failures"][0]["rank"], found["failures"][0]["node"]) == (5, "sim2"), job.err


def only_failure(job, found, rank, node):
    """Return the failure of this rank; assert that no other rank failed by itself."""
    by_itself = [f for f in found["failures"] if not f["cascade"]]
    assert [(f["rank"], f["node"]) for f in by_itself] == [(rank, node)], job.err
    return by_itself[0]


@pytest.mark.parametrize("fault", ["full", "full-exit"])
def test_a_rank_that_fills_its_file_system_is_the_culprit(mpi, tmp_path, small_disk, fault):
    """Whether it calls MPI_Abort or exits, the full file system is the cause."""
    before, place = small_disk
    job, found = faulty(mpi, tmp_path, fault, 5, "--nproc-per-node=4", before=before, FULL=place)
    assert job.p.returncode == 1, job.err
    assert_culprit(job, found, 5, "sim2", "disk-full")
    assert only_failure(job, found, 5, "sim2")["known_cause"] == "disk-full", job.err
    assert some_line(job.err, "  cause: a file system is full") and some_line(job.err, "  tip: ", "df -h"), job.err


def test_a_rank_that_exceeds_the_memory_of_its_cgroup_is_the_culprit(mpi, tmp_path, small_memory):
    job, found = faulty(mpi, tmp_path, "memory", 2, "--nproc-per-node=2", before=small_memory(768))
    assert job.p.returncode == 137, job.err
    assert_culprit(job, found, 2, "sim2", "oom-killer")
    assert only_failure(job, found, 2, "sim2")["out_of_memory"], job.err
    assert some_line(job.err, "error: rank 2 on sim2 was killed by signal 9 (SIGKILL): killed by the kernel, out of memory"), job.err


def test_a_stopped_rank_is_the_culprit_without_native_frames(mpi, tmp_path, clock):
    job, found = faulty(mpi, tmp_path, "stop", 2, "--nproc-per-node=2", hangs=clock)
    assert job.p.returncode in (134, 137), job.err
    assert_culprit(job, found, 2, "sim2", "hang")
    assert "stopped by a signal" in found["culprit"]["why"], job.err


@pytest.mark.parametrize("fault, why", [
    ("sleep", "which was in sleep, mpi_faulty.c:{}, while rank"),
    ("barrier", "which waits in PMPI_Barrier, mpi_faulty.c:{}, while rank"),
])
def test_native_frames_show_the_rank_that_the_others_wait_for(mpi, tmp_path, clock, fault, why):
    tool_path(tmp_path / "bin", "eu-stack")  # skips the test where that does not work
    job, found = faulty(mpi, tmp_path, fault, 2, "--nproc-per-node=2", "--stacks-native", hangs=clock)
    assert job.p.returncode in (134, 137), job.err
    assert_culprit(job, found, 2, "sim2", "hang")
    before, after = why.split("{}")
    assert before in found["culprit"]["why"] and after in found["culprit"]["why"], job.err
    assert "in PMPI_Allreduce, mpi_faulty.c:" in found["culprit"]["why"], job.err


def tips(job):
    return [line for line in job.err.splitlines() if line.startswith("  tip: ")]


def test_without_native_frames_the_report_of_a_hang_names_the_option_that_reads_them(mpi, tmp_path, clock):
    """MPI libraries busy-wait, so no processor time is what the ranks lack."""
    job, found = faulty(("--mpi=auto", mpi[1]), tmp_path, "sleep", 2, "--nproc-per-node=2", hangs=clock)
    assert job.p.returncode in (134, 137), job.err
    assert found["culprit"]["blame"] == "unknown" and found["known_cause"] == "hang", job.err
    assert (found["culprit"]["rank"], found["culprit"]["ranks"], found["culprit"]["node"]) == (None, None, None), found["culprit"]
    assert found["failures"][0]["message"] == f"the job hung: {HUNG}", job.err
    assert len(tips(job)) == 1 and "--stacks-native" in tips(job)[0] and "MPI" in tips(job)[0], job.err
    assert "  tip: " + found["what_to_do"] == tips(job)[0], job.err


MPI4PY = """
from mpi4py import MPI
world = MPI.COMM_WORLD
world.allreduce(1)
if world.rank == 5:
    {}
while True:
    world.allreduce(1)
"""


@needs_mpi4py
@pytest.mark.parametrize("fault, known, last", [
    ("raise ValueError('boom')", "mpi-abort", "ValueError: boom"),
    ("open('/dev/full', 'wb', buffering=0).write(b'result')", "disk-full", "OSError: [Errno 28] No space left on device"),
])
def test_an_exception_on_one_of_eight_ranks_of_mpi4py_is_the_cause(tmp_path, fault, known, last):
    """Without -m mpi4py, the rank waits for the others in MPI_Finalize forever (docs/failures.md)."""
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(MPI4PY.format(fault))
    env = clean_env(PYTHON_EXEC=PYTHON_OF_MPI4PY, OMPI_MCA_mpi_yield_when_idle="1")
    job = run("--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=4", f"--report={report}", "-m", "mpi4py", str(script), env=env)
    assert job.p.returncode == 1, job.err
    assert_culprit(job, json.loads(report.read_text()), 5, "sim2", known)
    assert f"    {last}\n" in job.err, "in the last lines of the rank"


LOADER = """
import threading
from mpi4py import MPI

class Data:
    def __len__(self):
        return 100

    def __getitem__(self, i):
        if i == 10:
            print("ready", flush=True)
            taken = threading.Lock()
            taken.acquire()
            taken.acquire()
        return float(i)

def load():
    from torch.utils.data import DataLoader  # the other ranks start without PyTorch
    for _ in DataLoader(Data(), num_workers=2, collate_fn=list):
        pass

world = MPI.COMM_WORLD
world.allreduce(1)
if world.rank == 2:
    load()
while True:
    world.allreduce(1)
"""


def mpi4py_beside_torch(place):
    """Return a directory for PYTHONPATH with mpi4py alone, for the Python that has torch: Debian's, if the versions are equal."""
    find = "import sys, mpi4py; print(*sys.version_info[:2], mpi4py.__path__[0])"
    found = [subprocess.run([python, "-c", find], capture_output=True, text=True, check=False).stdout.split()
             for python in (PYTHON, PYTHON_OF_MPI4PY)]
    version = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True).stdout
    folders = [words[2] for words in found if words[:2] == version.split()]
    if not folders:
        pytest.skip("no mpi4py for the Python that has torch (Debian: python3-mpi4py, if its Python has the same version)")
    place.mkdir()
    (place / "mpi4py").symlink_to(folders[0])
    return str(place)


@needs_mpi4py
@with_torch
@with_frames
@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_the_rank_of_mpi4py_that_waits_for_its_dataloader_is_the_culprit(tmp_path, clock, native):
    """Python frames show that the rank waits for a process of its own, only native ones that the others wait in MPI."""
    if native:
        tool_path(tmp_path / "bin", "eu-stack")  # skips the test where that does not work
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(LOADER)
    env = clean_env(PYTHONPATH=mpi4py_beside_torch(tmp_path / "site"), DDRUN_STACKS="auto", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
    job = hang(clock, "--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=2", f"--report={report}", *["--stacks-native"] * native,
               "-m", "mpi4py", str(script), env=env)
    assert job.p.returncode in (134, 137), job.err
    found = json.loads(report.read_text())
    assert [(c["ranks"], c["dataloader"]) for c in found["stacks"]["children"]] == [("2", True)], job.err
    if native:
        assert_culprit(job, found, 2, "sim2", "dataloader-worker-stuck")
        assert "which waits for a DataLoader process, train.py:" in found["culprit"]["why"], job.err
    else:
        assert (found["culprit"]["blame"], found["known_cause"]) == ("unknown", "hang"), job.err
        assert len(tips(job)) == 1 and "--stacks-native" in tips(job)[0], job.err
