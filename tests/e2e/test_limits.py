"""Too few file descriptors: ddrun ends with a message, or waits without using the CPU."""

import os
import resource
import subprocess

import pytest

from support import DDRUN, LIMIT, Job, clean_env, some_line, until, without_tips

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")


@pytest.mark.parametrize("files", range(6, 21))
def test_too_few_files_end_the_job_with_a_sentence(files):
    """With 14, ddrun once started a daemon that it could not watch, and waited for the daemon's end in vain."""
    with Job("--nproc-per-node=2", "true", before=("prlimit", f"--nofile={files}:{files}")) as job:
        code = job.wait()
        assert code in (0, 2, 126), job.err
        said = [line for line in without_tips(job.err) if "pipe" not in line]
        assert (code == 0) == (said == []), job.err
        assert code == 0 or "Too many open files" in job.err, job.err
        job.assert_nothing_left()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_caller_for_whom_there_is_no_file_waits_and_costs_nothing():
    """The event loop once reported the waiting connection without end."""
    with Job("--nproc-per-node=1", f"--rdzv-id=limits{os.getpid()}", "sh", "-c", "echo ready; exec sleep 1000") as job:
        job.line("ready")
        (agent,) = job.agents()
        soft, hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (3, hard))  # open descriptors stay open
        before = cpu_seconds(agent)
        ask = [DDCTL, "status", f"--job=limits{os.getpid()}"]
        refused = subprocess.run(ask, env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)
        assert refused.returncode != 0 and some_line(refused.stderr, "answer", "3 s"), refused.stderr
        assert cpu_seconds(agent) - before < 0.5
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: subprocess.run(ask, env=clean_env(), capture_output=True, timeout=LIMIT, check=False).returncode == 0, say="an answer")
        job.p.terminate()
        assert job.wait() == 143
        job.assert_nothing_left()
