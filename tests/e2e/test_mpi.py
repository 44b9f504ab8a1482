"""Real MPI programs under ddrun --mpi, unmodified: MPICH by PMI-1, Open MPI by PMIx."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from support import DDRUN, LIMIT, Job, built_with, clean_env, has_module, marked, program, run, some_line, told, until

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

KINDS = {"mpich": "pmi1", "openmpi": "pmix"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return built(kind), which compiles the test program with that MPI."""
    made = {}

    def build(kind):
        compiler = shutil.which(f"mpicc.{kind}")
        if compiler is None:
            pytest.skip(f"no mpicc.{kind} on this machine (Debian: libmpich-dev, libopenmpi-dev)")
        if kind == "openmpi" and not built_with("PMIX"):
            pytest.skip("ddrun was built without libpmix (Debian: libpmix-dev)")
        if kind not in made:
            made[kind] = str(tmp_path_factory.mktemp("mpi") / f"sum.{kind}")
            subprocess.run([compiler, "-O1", "-o", made[kind], program("mpi_sum.c")], check=True)
        return made[kind]

    return build


@pytest.fixture(params=sorted(KINDS))
def mpi(request, built):
    """Return (--mpi=HOW, program) for each MPI that is installed."""
    return f"--mpi={KINDS[request.param]}", built(request.param)


def ranks(job):
    return sorted(line for line in job.out.splitlines() if line.startswith("rank "))


def world(nodes, each, round_=0):
    return [f"rank {n * each + i}/{nodes * each} node {i}/{each} RANK {n * each + i} round {round_}"
            for n in range(nodes) for i in range(each)]


def test_the_ranks_of_one_node_are_one_world(mpi):
    how, sum_ = mpi
    job = run(how, "--nproc-per-node=4", sum_)
    assert job.p.returncode == 0, job.err
    assert ranks(job) == world(1, 4)


def test_the_ranks_of_two_nodes_are_one_world(mpi):
    how, sum_ = mpi
    job = run(how, "--simulate-nodes=2", "--nproc-per-node=2", sum_)
    assert job.p.returncode == 0, job.err
    assert ranks(job) == world(2, 2)


@pytest.mark.parametrize("fence", ["1", "0"])
def test_open_mpi_may_ask_for_single_addresses(built, fence):
    """Direct modex: no data in the fence of MPI_Init, or no fence at all."""
    env = clean_env(OMPI_MCA_pmix_base_collect_data="0", OMPI_MCA_pmix_base_async_modex="0" if fence == "1" else "1")
    job = run("--mpi=pmix", "--simulate-nodes=2", "--nproc-per-node=2", built("openmpi"), env=env)
    assert job.p.returncode == 0, job.err
    assert ranks(job) == world(2, 2)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_killed_rank_starts_all_again(mpi, nodes):
    how, sum_ = mpi
    job = run(how, f"--simulate-nodes={nodes}", f"--nproc-per-node={4 // nodes}", "--max-restarts=1", sum_, "before", "kill", "3", "1")
    assert job.p.returncode == 0, job.err
    assert ranks(job) == sorted(world(nodes, 4 // nodes) + world(nodes, 4 // nodes, 1))


@pytest.mark.parametrize("end, code, why", [
    ("abort", 42, "MPI_Abort"),
    ("exit0", 1, "failed: it exited with 0, but without MPI_Finalize"),
    ("exit7", 7, "(exit code 7)"),
    ("kill", 137, "signal 9"),
])
def test_the_end_of_one_rank_ends_the_job(mpi, end, code, why):
    how, sum_ = mpi
    job = run(how, "--nproc-per-node=2", sum_, end, "1")
    assert job.p.returncode == code, job.err
    assert "rank 1 " in job.err and why in job.err


@pytest.mark.parametrize("mine, others", [("openmpi", "pmi1"), ("mpich", "pmix")])
def test_ranks_that_are_not_served_fail_and_are_no_worlds_of_their_own(built, mine, others):
    job = run(f"--mpi={others}", "--nproc-per-node=2", built(mine))
    assert job.p.returncode != 0 and ranks(job) == [], job.out
    assert mine != "mpich" or "--mpi=auto" in job.err


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_auto_serves_either(built, kind):
    job = run("--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=2", built(kind))
    assert job.p.returncode == 0, job.err
    assert ranks(job) == world(2, 2)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_twenty_restarts_in_a_row(built, kind):
    job = run(f"--mpi={KINDS[kind]}", "--nproc-per-node=2", "--max-restarts=20", built(kind), "before", "kill", "1", "20")
    assert job.p.returncode == 0, job.err
    assert ranks(job) == sorted(line for r in range(21) for line in world(1, 2, r))


def whose_parent_is_no_ddrun(job):
    return [p for p in job.processes("ddrun") if p not in job.agents()]


@pytest.mark.parametrize("who", ["agent", "guardian", "both", "helper"])
def test_nothing_is_left_of_open_mpi_whoever_is_killed(built, who):
    with Job("--mpi=pmix", "--nproc-per-node=2", built("openmpi"), "wait", "1") as job:
        job.line("rank 1/2")
        agent, guardian, helper = job.agents(), whose_parent_is_no_ddrun(job), job.processes("ddrun-pmix")
        assert agent and guardian and helper
        victims = {"agent": agent, "guardian": guardian, "both": agent + guardian, "helper": helper}[who]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        assert job.wait() != 0
        if who == "helper":
            assert some_line(job.err, "error: ", "ddrun-pmix")
        until(lambda: not marked(job.mark), say="the end of all processes")
        until(lambda: not os.listdir(job.places["TMPDIR"].name), say="the end of the files")
        job.assert_nothing_left()


def test_without_the_helper_pmix_is_refused_and_auto_goes_on(tmp_path):
    for name in ("ddrun", "ddrund"):  # alone: no ddrun-pmix beside them
        shutil.copy(os.path.join(os.path.dirname(DDRUN), name), tmp_path)

    def alone(how):
        return subprocess.run([str(tmp_path / "ddrun"), how, "--no-python", "true"], env=clean_env(), capture_output=True,
                              text=True, timeout=LIMIT, check=False)

    refused = alone("--mpi=pmix")
    if refused.returncode == 0:
        pytest.skip("ddrun-pmix is installed on this machine")
    assert refused.returncode == 2 and "ddrun-pmix" in refused.stderr
    assert alone("--mpi=auto").returncode == 0


READ_ONLY_TMP = ["unshare", "--mount", "sh", "-c",
                 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec "$@"', "sh"]


@pytest.mark.skipif(not built_with("PMIX"), reason="ddrun was built without libpmix (Debian: libpmix-dev)")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make /tmp read-only for a test")
def test_without_a_writable_tmp_pmix_is_refused_and_auto_serves_pmi1():
    def there(how):
        return subprocess.run([*READ_ONLY_TMP, DDRUN, how, "sh", "-c", 'echo "${PMI_FD:+pmi1} ${PMIX_RANK:+pmix}"'],
                              env=clean_env(TMPDIR="/tmp"), capture_output=True, text=True, timeout=LIMIT, check=False)

    refused = there("--mpi=pmix")
    assert refused.returncode == 2 and some_line(refused.stderr, "error: ", "/tmp")
    auto = there("--mpi=auto")
    assert (auto.returncode, auto.stdout.split()) == (0, ["pmi1"]), auto.stderr
    assert some_line(auto.stderr, "warning: ", "PMIx", "/tmp")


@pytest.mark.skipif(not built_with("PMIX"), reason="ddrun was built without libpmix (Debian: libpmix-dev)")
def test_a_helper_that_starts_slowly_makes_no_node_a_lost_one(tmp_path, clock):
    """The agent waits for the helper longer than --heartbeat: libpmix may come from a slow file system. The test stops the clock, so
    that a busy machine does not make the wait longer than the agent permits."""
    here = os.path.dirname(DDRUN)
    for name in ("ddrun", "ddrun-openssl.so"):
        if os.path.exists(os.path.join(here, name)):  # OpenSSL may be linked into ddrun
            shutil.copy(os.path.join(here, name), tmp_path)
    slow = tmp_path / "ddrun-pmix"
    wait = f"touch {tmp_path}/waits.$$; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    slow.write_text(f'#!/bin/sh\n[ "$1" = --check ] || {{ {wait}; }}\nexec {here}/ddrun-pmix "$@"\n')
    slow.chmod(0o755)
    with Job("--mpi=pmix", "--simulate-nodes=2", "--heartbeat=6s", "--no-python", "true", env=clean_env(**clock.env),
             program=str(tmp_path / "ddrun")) as job:
        until(lambda: len(list(tmp_path.glob("waits.*"))) == 2, say="both helpers")
        clock.stop()
        for _ in range(8):  # the daemon takes a longer step for a pause of its own
            clock.advance(0.9)
            time.sleep(0.05)
        (tmp_path / "go").touch()
        clock.go()
        assert (job.wait(), told(job.err)) == (0, "")
        job.assert_nothing_left()


def test_a_program_without_mpi_need_not_finalize():
    job = run("--mpi=pmi1", "--nproc-per-node=2", "--no-python", "true")
    assert job.p.returncode == 0, job.err


def test_workers_have_no_descriptor_but_theirs(tmp_path):
    worker = tmp_path / "fds.py"
    worker.write_text("import os, stat\n"
                      "e = os.environ\n"
                      "fds = [n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]\n"
                      "kind = stat.S_ISSOCK(os.fstat(int(e['PMI_FD'])).st_mode)\n"
                      "os.write(1, f\"{e['PMI_RANK']} {e['PMI_SIZE']} {fds} {kind}\\n\".encode())\n")
    job = run("--mpi=pmi1", "--nproc-per-node=2", str(worker))
    assert job.p.returncode == 0, job.err
    assert sorted(job.out.splitlines()) == ["0 2 [3] True", "1 2 [3] True"]


PYTHON_OF_MPI4PY = "/usr/bin/python3"


def needs_mpi4py(test):
    there = has_module(PYTHON_OF_MPI4PY, "mpi4py")
    test = pytest.mark.skipif(not there, reason="no mpi4py (Debian: python3-mpi4py)")(test)
    return pytest.mark.skipif(not built_with("PMIX"), reason="ddrun was built without libpmix (Debian: libpmix-dev)")(test)


@needs_mpi4py
@pytest.mark.parametrize("nodes", [1, 2])
def test_an_io_benchmark_under_mpi4py(tmp_path, nodes):
    """All ranks write one file together and read what others have written."""
    job = run("--mpi=auto", f"--simulate-nodes={nodes}", f"--nproc-per-node={4 // nodes}", program("mpi_io.py"),
              str(tmp_path / "file"), "4", env=clean_env(PYTHON_EXEC=PYTHON_OF_MPI4PY))
    assert job.p.returncode == 0, job.err
    assert job.out.startswith("4 ranks, 16 MiB: wrote ")
    assert os.path.getsize(tmp_path / "file") == 16 << 20


@needs_mpi4py
def test_mpi4py_over_two_nodes(tmp_path):
    worker = tmp_path / "sum.py"
    worker.write_text("import os\n"
                      "from mpi4py import MPI\n"
                      "w = MPI.COMM_WORLD\n"
                      "total = w.allreduce(w.rank + 1)\n"
                      "os.write(1, f'{w.rank}={os.environ[\"RANK\"]} of {w.size} total {total}\\n'.encode())\n")
    job = run("--mpi=auto", "--simulate-nodes=2", "--nproc-per-node=2", str(worker), env=clean_env(PYTHON_EXEC=PYTHON_OF_MPI4PY))
    assert job.p.returncode == 0, job.err
    assert sorted(job.out.splitlines()) == [f"{r}={r} of 4 total 10" for r in range(4)]


def outer_run(launcher, *args):
    """Run one ddrun for each process of an outer launcher."""
    path = shutil.which(launcher)
    if path is None:
        pytest.skip(f"no {launcher} on this machine (Debian: mpich)")
    return subprocess.run([path, "-n", "2", DDRUN, *args], env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)


def test_hydra_starts_the_agents_and_they_find_each_other(built):
    done = outer_run("mpiexec.hydra", "--mpi=pmi1", "--nproc-per-node=2", built("mpich"))
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank ")) == world(2, 2)


def test_workers_take_no_claim_of_the_outer_launcher_for_theirs(tmp_path):
    worker = tmp_path / "env.py"
    worker.write_text("import os\n"
                      "seen = [k for k in os.environ if k.startswith(('PMI_', 'PMIX_', 'OMPI_COMM', 'MPI_LOCAL', 'HYDI'))]\n"
                      "os.write(1, f'{os.environ[\"RANK\"]} {seen}\\n'.encode())\n")
    done = outer_run("mpiexec.hydra", "--nproc-per-node=2", str(worker))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{r} []" for r in range(4)]
