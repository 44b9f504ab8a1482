"""ddrun where the kernel has no pidfd_open(2) (ENOSYS), or a container's seccomp filter forbids it (EPERM)."""

import errno
import os
import signal
import sys

import pytest

from support import DDRUN, Job, program, until

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


@pytest.fixture(params=["ENOSYS", "EPERM"])
def start(request):
    def job(*args):
        return Job(*args, before=(sys.executable, program("without_pidfd.py"), str(getattr(errno, request.param))))

    return job


@pytest.mark.parametrize("nodes", [(), ("--simulate-nodes=2",)])
def test_a_job_runs(start, nodes):
    with start(*nodes, "--nproc-per-node=2", "--health-check=true", "sh", "-c", "echo rank $RANK") as job:
        assert job.wait() == 0, job.err
        assert job.out.count("rank ") == 2 * (2 if nodes else 1)
        job.assert_nothing_left()


def test_a_command_that_hangs_is_ended_at_its_limit(start):
    with start("--health-check=sleep 600", "--health-timeout=1s", "true") as job:
        assert job.wait() != 0
        assert "health" in job.err
        job.assert_nothing_left()


def test_the_end_of_the_daemon_is_noticed(start):
    with start("--simulate-nodes=3", "--nproc-per-node=1", "--max-restarts=1", "--shutdown-timeout=1s", "sh", "-c",
               "echo ready $TORCHELASTIC_RESTART_COUNT; exec sleep 600") as job:
        seen = ""
        while seen.count("ready") < 3:
            seen += job.line("ready")
        os.kill(job.processes("ddrund")[0], signal.SIGKILL)
        while seen.count("ready") < 6:
            seen += job.line("ready")
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143, job.err
        until(lambda: not job.processes("ddrund"), say="the end of the daemons")
        job.assert_nothing_left()
