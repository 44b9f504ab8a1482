"""What users of mpirun, srun and other launchers write, because they have always written it."""

import os

import pytest

from support import DDRUN, Job, clean_env, run

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


# ---- --chdir ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with a program in it that says where it runs."""
    there = tmp_path / "there"
    there.mkdir()
    program = there / "where.sh"
    program.write_text('#!/bin/sh\necho "$(pwd) $PWD $(dirname "$TORCHELASTIC_ERROR_FILE")"\n')
    program.chmod(0o755)
    return there


@pytest.mark.parametrize("option", ["--chdir=there", "-Dthere", "-D{}"])
@pytest.mark.parametrize("script", ["where.sh", "./where.sh"])
def test_the_workers_run_where_chdir_says(folder, option, script):
    """And log files are where they would be without it."""
    with Job("--simulate-nodes=2", option.format(folder), "--log-dir=logs", script, env=clean_env(), cwd=folder.parent) as job:
        assert job.wait() == 0, job.err
        lines = [line.split() for line in job.out.splitlines()]
        assert [line[:2] for line in lines] == [[str(folder)] * 2] * 2
        assert all(line[2].startswith(str(folder.parent / "logs") + "/") for line in lines)
        assert (folder.parent / "logs").is_dir() and not (folder / "logs").exists()


def test_dry_run_shows_the_folder(folder):
    job = run("--dry-run", "-D", str(folder), "where.sh")
    assert job.p.returncode == 0 and f"  PWD={folder}\n" in job.out and f"  run {folder}/./where.sh\n" in job.out


def test_a_folder_that_is_not_there_starts_nothing(tmp_path):
    job = run("--simulate-nodes=2", f"--chdir={tmp_path}/none", "echo", "started")
    assert job.p.returncode == 2 and job.out == ""
    assert job.err.endswith(": No such file or directory\n") and job.err.count("\n") == 1
    assert f"--chdir={tmp_path}/none: the workers cannot run there on {os.uname().nodename}" in job.err


def test_a_folder_that_one_node_lacks_ends_the_job(folder):
    """Node 1 is started where the name leads nowhere."""
    env = clean_env(DDRUN_KEY="5e" * 32)
    options = ["--hosts=127.0.0.1,127.0.0.2", "--chdir=there", "--rdzv-id=carried", "--rdzv-timeout=60s"]
    with Job(*options, "--node-rank=0", "echo", "started", env=env, cwd=folder.parent) as first, \
            Job(*options, "--node-rank=1", "echo", "started", env=env, cwd=folder) as second:
        assert (first.wait(), second.wait()) == (2, 2), first.err + second.err
        assert first.out == second.out == ""
        assert "127.0.0.2" in first.err and "--chdir=there: the workers cannot run there" in first.err, first.err


# ---- --timeout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_ends_when_its_time_is_over(nodes):
    with Job(f"--simulate-nodes={nodes}", "--timeout=300ms", "--nproc-per-node=2", "sleep", "1000", env=clean_env()) as job:
        assert job.wait() == 124
        assert "the 0.3 s of --timeout are over" in job.err, job.err
        job.assert_nothing_left()


def test_the_time_counts_while_nodes_are_missing():
    with Job("--hosts=127.0.0.1,127.0.0.2", "--node-rank=0", "--timeout=300ms", "echo", "started",
             env=clean_env(DDRUN_KEY="5e" * 32)) as job:
        assert job.wait() == 124 and job.out == ""
        assert "--timeout" in job.err, job.err


def test_a_worker_that_ignores_the_end_is_killed():
    with Job("--standalone", "--timeout=300ms", "--shutdown-timeout=100ms", "sh", "-c", "trap '' TERM; sleep 1000 & wait; wait",
             env=clean_env()) as job:
        assert job.wait() == 124
        job.assert_nothing_left()


def test_a_job_that_ends_in_time_is_not_touched():
    job = run("--standalone", "--timeout=1h", "sh", "-c", "exit 7")
    assert job.p.returncode == 7 and "--timeout" not in job.err
