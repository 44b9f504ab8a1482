"""--hang-timeout: workers that run but do nothing are found, and nobody else."""

import os
import re
import signal
import time

import pytest

from support import Job, clean_env, marked, program, run, told

NODES = ["--simulate-nodes=2", "--nproc-per-node=2", "--shutdown-timeout=2s"]
SOON = "--hang-timeout=5s"


def hang(*options, how="output", **env):
    return run(*NODES, SOON, *options, program("hang.py"), how, env=clean_env(**env))


@pytest.mark.parametrize("how, sign, says", [
    ("output", "output", "no output"),
    ("file", "file", "no heartbeat"),
    ("output", "any", "no output or heartbeat"), ("file", "any", "no output or heartbeat"),
])
def test_a_rank_that_does_nothing_is_named_and_ended_with_its_python_stack(how, sign, says):
    job = hang(f"--hang-sign={sign}", how=how)
    assert job.p.returncode == 134, job.err
    said = [line for line in job.err.splitlines() if " seems hung: " in line]
    assert len(said) == 1 and says in said[0], job.err
    assert re.search(r"rank 1 on sim1 seems hung: .* for \d+ s \(local rank 1, pid \d+, state S", said[0])
    assert "in wait_for_ever" in job.err  # faulthandler
    assert "on sim1 was killed by signal 6 (SIGABRT): it gave no sign of life for 5 s" in job.err
    assert re.search(r"tip: .*PYTHONFAULTHANDLER", job.err) and "native code" not in job.err


def test_a_restart_gives_it_another_try():
    job = hang("--max-restarts=1")
    assert job.p.returncode == 0, job.err
    assert " seems hung: " in job.err and "starting all workers again (1 of 1)" in job.err


def test_a_worker_that_takes_the_abort_for_a_good_end_has_failed_all_the_same():
    assert hang(how="deaf").p.returncode == 134


def test_a_command_is_run_instead_of_the_abort():
    job = hang("--on-hang=echo rank $DDRUN_HUNG_RANK; tr '\\0' ' ' </proc/$DDRUN_HUNG_PID/cmdline")
    assert job.p.returncode == 137, job.err
    assert "rank 1: rank 1" in job.err and "hang.py output" in job.err
    assert "SIGKILL): it gave no sign of life" in job.err and "something sent SIGKILL" not in job.err


def test_py_spy_is_asked_where_it_is_there(tmp_path):
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "asked: $*"\necho "Thread 0x7F (idle)"\n')
    (tmp_path / "py-spy").chmod(0o755)
    job = hang(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert job.p.returncode == 134, job.err
    assert re.search(r"rank 1: asked: dump --nonblocking --pid \d+$", job.err, re.M) and "rank 1: Thread 0x7F (idle)" in job.err


def test_a_command_that_fails_is_told():
    job = hang("--on-hang=exit 5")
    assert job.p.returncode == 137 and "--on-hang: ended with code 5" in job.err


@pytest.mark.parametrize("options, env", [
    (["--hang-sign=output"], {}), (["--hang-sign=output", "--label"], {}), (["--hang-sign=output", "--local-ranks-filter=7"], {}),
    (["--hang-sign=file"], {"how": "file"})])
def test_who_gives_signs_lives(options, env, tmp_path):
    how = env.get("how", "output")
    job = run(*NODES, SOON, *options, program("hang.py"), how, env=clean_env(SIGNS="40", PAUSE="0.2", RANKS="9"))
    assert job.p.returncode == 0 and told(job.err) == "", job.err


def test_output_that_goes_to_files_counts(tmp_path):
    job = run(SOON, "--redirects=3", f"--log-dir={tmp_path}/logs", program("hang.py"), "output",
              env=clean_env(SIGNS="40", PAUSE="0.2", RANKS="9"))
    assert job.p.returncode == 0 and job.err == "", job.err


def test_output_stays_as_it_is():
    job = run("--hang-timeout=1h", "sh", "-c", "echo out; echo err >&2; printf 'no end'")
    assert (job.p.returncode, job.out, job.err) == (0, "out\nno end", "err\n")


def test_a_job_that_is_stopped_and_goes_on_does_not_hang():
    with Job(*NODES, SOON, program("hang.py"), "output", env=clean_env(SIGNS="25", PAUSE="0.2", RANKS="9")) as job:
        job.line("step")
        pids = marked(job.mark)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(9)  # longer than is allowed
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        assert job.wait() == 0, job.err
        assert "seems hung" not in job.err


def test_a_worker_that_somebody_holds_does_not_hang():
    with Job(SOON, program("hang.py"), "output", env=clean_env(SIGNS="5", RANKS="9")) as job:
        job.line("step")
        worker, = job.workers()
        os.kill(worker, signal.SIGSTOP)
        time.sleep(9)
        assert job.p.poll() is None
        os.kill(worker, signal.SIGCONT)
        assert job.wait() == 0 and job.err == "", job.err


def test_kill_9_of_the_agent_leaves_no_heartbeat_file():
    with Job(SOON, "--hang-sign=file", program("hang.py"), "output", env=clean_env(RANKS="9", SIGNS="1000")) as job:
        job.line("step")
        os.kill(job.agents()[0], signal.SIGKILL)
        assert job.wait() != 0
        job.assert_nothing_left()
