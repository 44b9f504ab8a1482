"""Allocations fail at one place after the other of a whole small job: the job may fail, but it never crashes, hangs or leaves
anything."""

import shutil
import subprocess

import pytest

from support import KEY, Job, clean_env, free_port, program, told, without_tips

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


def test_an_agent_does_not_crash_where_openssl_gets_no_memory_to_start(refuser):
    """Some 60 allocations of the start of OpenSSL follow about 280 of ddrun."""
    for at in range(250, 360, 10):
        env = clean_env(LD_PRELOAD=str(refuser), NOMEMORY_IN="ddrun", NOMEMORY_AT=str(at))
        with Job("--simulate-nodes=2", "--nproc-per-node=1", "true", env=env) as job:
            assert 0 <= job.wait() < 128, f"allocation {at}: {job.err}"
            assert "killed by signal" not in job.err, f"allocation {at}: {job.err}"
            job.assert_nothing_left()


@pytest.mark.parametrize("rank, since, said", [(0, "link", "is out of memory and leaves the job (its connection to the daemon: cannot send 'join' to it:"),
                                               (1, "connect", "cannot connect to the job's daemon: out of memory")],
                         ids=["leader", "other"])
def test_an_agent_without_memory_to_join_says_so_and_ends(refuser, rank, since, said):
    port = free_port()
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--nproc-per-node=1"]
    env = clean_env(DDRUN_KEY=KEY)
    poor = clean_env(DDRUN_KEY=KEY, LD_PRELOAD=str(refuser), NOMEMORY_IN="ddrun", NOMEMORY_FROM=since)
    with Job(f"--node-rank={1 - rank}", *args, "true", env=env), Job(f"--node-rank={rank}", *args, "true", env=poor) as job:
        assert job.wait() == 2, job.err  # --rdzv-timeout is longer
        assert without_tips(told(job.err)) == [line for line in job.err.splitlines() if said in line]
        assert job.err.count("error: ") == 1, job.err
        job.assert_nothing_left()
