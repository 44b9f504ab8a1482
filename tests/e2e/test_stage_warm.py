"""--stage with --warm: the interpreter that forks the workers starts from the copy."""

import os
import signal
import subprocess

import pytest

import support
from support import DDRUN, Job, built_with, clean_env, lines_with, run, some_line, until
from test_stage import mounts

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(subprocess.run([support.PYTHON, "-c", "import ctypes"], capture_output=True, check=False).returncode != 0,
                                 reason="DDRUN_PYTHON has no module ctypes")]
needs_mounts = pytest.mark.skipif(not mounts(), reason="neither this user nor a user namespace may mount")

# The agent may be silent for half of this, and is slow on a busy machine: no worker is executed instead.
PATIENT = "--heartbeat=60s"
HEAVY = """
import os
with open(os.environ["IMPORTS"], "a") as f:
    f.write("%d %d\\n" % (os.getpid(), os.stat(__file__).st_ino))
"""


@pytest.fixture(name="place")
def make_place(tmp_path):
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "lib" / "heavy.py").write_text(HEAVY)
    return tmp_path


def arguments(place, text, *options):
    script = place / "train.py"
    script.write_text(text)
    return [PATIENT, "--warm=heavy", f"--stage={place}/env", "--log-level=info", *options, str(script)]


def env(place):
    return clean_env(IMPORTS=str(place / "imports"), XDG_CACHE_HOME=str(place / "cache"), PYTHONPATH=str(place / "env" / "lib"))


def imports(place):
    """Pid and inode of each import of the module."""
    path = place / "imports"
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


@needs_mounts
def test_workers_are_forked_from_an_interpreter_of_the_copy(place):
    job = run(*arguments(place, "import heavy, os; print('worker', os.getpid(), os.stat(heavy.__file__).st_ino)",
                         "--simulate-nodes=2", "--nproc-per-node=2"), env=env(place))
    assert job.p.returncode == 0, job.err
    workers = [tuple(map(int, line.split()[1:])) for line in lines_with(job.out, "worker")]
    found = imports(place)
    assert len(found) == 2 and len(workers) == 4, "one import a node"
    assert not {pid for pid, _ in found} & {pid for pid, _ in workers}
    assert {inode for _, inode in found} == {inode for _, inode in workers}, "in the copies"
    assert os.stat(place / "env" / "lib" / "heavy.py").st_ino not in {inode for _, inode in found}


@needs_mounts
def test_a_restart_forks_from_the_same_interpreter(place):
    job = run(*arguments(place, "import os, sys; r = os.environ['TORCHELASTIC_RESTART_COUNT']; print('restart', r); sys.exit(r == '0')",
                         "--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1"), env=env(place))
    assert job.p.returncode == 0, job.err
    assert job.out.count("restart 1") == 2 and len(imports(place)) == 2, job.err
    assert len(lines_with(job.err, "staged ")) == 2, job.err


def test_workers_are_executed_where_the_copy_cannot_be_mounted(place):
    job = run(*arguments(place, "import heavy; print('imported', heavy.__file__)", "--nproc-per-node=2", "--stage-mount=no"),
              env=env(place))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "--warm", "not mounted", "executed"), job.err
    assert len(lines_with(job.out, "imported", "/0/lib/heavy.py")) == 2 and str(place) not in job.out, job.out


@needs_mounts
def test_a_worker_with_python_variables_of_its_own_is_executed_in_the_copy(place):
    job = run(*arguments(place, "import heavy, os; print('worker', os.getpid())", "--nproc-per-node=2", "-x", "1:PYTHONHASHSEED=3"),
              env=env(place))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "--warm does not apply to rank 1"), job.err
    inodes = {inode for _, inode in imports(place)}
    assert len(imports(place)) == 2 and len(inodes) == 1, "the interpreter and rank 1, both in the copy"
    assert os.stat(place / "env" / "lib" / "heavy.py").st_ino not in inodes


@needs_mounts
def test_a_signal_during_the_import_leaves_nothing(place):
    (place / "env" / "lib" / "heavy.py").write_text(HEAVY + "import time; time.sleep(600)\n")
    with Job(*arguments(place, "pass", "--nproc-per-node=2"), env=env(place)) as job:
        until(lambda: imports(place))
        job.p.send_signal(signal.SIGINT)
        assert job.wait() == 130, job.err
        job.assert_nothing_left()
