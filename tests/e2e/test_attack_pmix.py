"""Another user connects to libpmix's port and says nothing: libpmix, whose one thread reads with blocking calls, never sees it."""

import os
import shutil
import subprocess
import tempfile

import pytest

from support import ATTACKER, SYSTEM_PYTHON, VICTIM, Job, as_two_users, built_with, clean_env, command_as, program

LIMIT = 120

pytestmark = [*as_two_users,
              pytest.mark.skipif(not built_with("PMIX"), reason="ddrun was built without libpmix (Debian: libpmix-dev)")]


def test_silent_connections_of_another_user_do_not_stop_an_mpi_job():
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None:
        pytest.skip("no mpicc.openmpi on this machine (Debian: libopenmpi-dev)")
    with tempfile.TemporaryDirectory(prefix="e2e") as home:
        os.chown(home, VICTIM, VICTIM)
        go, ranks = os.path.join(home, "go"), os.path.join(home, "ranks")
        subprocess.run([compiler, "-O1", "-o", ranks, program("mpi_sum.c")], check=True)
        script = f"echo ready; until [ -e {go} ]; do sleep 0.1; done; exec {ranks}"
        with Job("--mpi=pmix", "--nproc-per-node=2", "sh", "-c", script, home=home, tmp=home, cwd="/", env=clean_env(),
                 before=command_as(VICTIM)) as job:
            job.line("ready")
            stranger = subprocess.Popen(command_as(ATTACKER, SYSTEM_PYTHON, program("silent_callers.py"), str(VICTIM)), stdout=subprocess.PIPE,
                                        cwd="/", text=True)
            try:
                assert stranger.stdout.readline() == "connected\n"
                open(go, "w").close()
                assert job.wait(LIMIT) == 0, job.err
                assert stranger.poll() is None and job.out.count("rank ") == 2, job.out
            finally:
                stranger.kill()
                stranger.communicate()
