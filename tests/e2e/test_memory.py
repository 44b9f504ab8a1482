"""Allocations fail at one place after the other of a whole small job: the job may fail, but it never crashes, hangs or leaves
anything."""

import shutil
import subprocess

import pytest

from support import Job, clean_env, program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the library that refuses memory")


@pytest.fixture(scope="module")
def refuser(tmp_path_factory):
    path = tmp_path_factory.mktemp("nomemory") / "nomemory.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, program("nomemory.c")], check=True)
    return path


# ddrun (options, allocation, guardian and agent) makes some 500 allocations, ddrund some 600. These tests fail the first nine
# of each and a sample of the others: all of them, one after the other, take 6 minutes of two cores.
@pytest.mark.parametrize("how_long", [1, 50], ids=["once", "for-a-while"])
@pytest.mark.parametrize("name, all_, step", [("ddrun", 520, 61), ("ddrund", 640, 107)])
def test_a_job_without_memory_ends_and_leaves_nothing(refuser, name, all_, step, how_long):
    failed = 0
    for at in [*range(1, 10), *range(10, all_, step)]:
        env = clean_env(LD_PRELOAD=str(refuser), NOMEMORY_IN=name, NOMEMORY_AT=str(at), NOMEMORY_FOR=str(how_long))
        with Job("--nproc-per-node=1", "true", env=env) as job:
            code = job.wait()
            assert 0 <= code < 128, f"allocation {at}: {code}: {job.err}"
            assert "signal 11" not in job.err and "signal 6" not in job.err, f"allocation {at}: {job.err}"
            assert code == 0 or job.err != "", f"allocation {at}: {code}, and not a word"
            job.assert_nothing_left()
            failed += code != 0
    assert failed > 0  # else memory was never refused
