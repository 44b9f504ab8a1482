"""--nccl-ras: what NCCL knows about its communicators. NCCL needs GPUs, so the workers listen in its place, and answer in its form
(programs/nccl_ras_worker.py)."""

import json
import os
import subprocess

import pytest

from support import BUILD, Job, answered, clean_env, program, run, some_line
from test_hang import hung

DDCTL = os.path.join(BUILD, "ddctl")
COUNTS = "communicator 27a079b828ff1a75 of 4 ranks: AllReduce operation counts differ: ranks 0-1,3 at 812, rank 2 at 811"
CULPRIT = "which has launched 811 AllReduce operations of NCCL communicator 27a079b828ff1a75, while others are at 812"


def worker(tmp_path, how):
    return [program("nccl_ras_worker.py"), str(tmp_path), how]


def stacks(*options):
    asked = answered([DDCTL, "stacks", "--timeout=25s", *options])
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def wait_until_ready(job, n):
    seen = ""
    while seen.count("ready") < n:
        seen += job.line("ready")


def end(job):
    job.p.terminate()
    job.wait()
    job.assert_nothing_left()


@pytest.mark.parametrize("where", [["--nproc-per-node=4"], ["--simulate-nodes=2", "--nproc-per-node=2"]])
def test_the_report_of_a_hang_names_the_rank_that_is_behind(where, tmp_path, clock):
    report, logs = tmp_path / "report.json", tmp_path / "logs"
    with Job(*where, "--nccl-ras=on", "--stacks=on-hang", "--stacks-timeout=120s", "--hang-timeout=30s", "--heartbeat=1h", "--shutdown-timeout=2s",
             f"--report={report}", f"--log-dir={logs}", *worker(tmp_path, "behind"), env=clean_env(**clock.env)) as job:
        wait_until_ready(job, 4)
        err = hung(clock, job)
        assert job.wait() in (134, 137), err + job.err
        err += job.err
        job.assert_nothing_left()
    assert some_line(err, COUNTS) and some_line(err, "culprit: rank 2 on", CULPRIT), err
    with open(report, encoding="utf-8") as f:
        read = json.load(f)
    assert read["culprit"]["rank"] == 2 and read["culprit"]["blame"] == "worker"
    sets = read["stacks"]["nccl_ras"]["findings"][0]["sets"]
    assert [(s["operation"], s["ranks"]) for s in sets] == [(812, "0-1,3"), (811, "2")]
    answers = [path.read_text(encoding="utf-8") for path in logs.rglob("nccl_ras.txt")]
    assert answers and "Rank 2 has launched up to operation 811" in answers[0]
    again = subprocess.run([DDCTL, "report", report], capture_output=True, text=True, check=True)
    assert COUNTS in again.stdout and CULPRIT in again.stdout


def test_ddctl_stacks_asks_nccl(tmp_path):
    with Job("--nproc-per-node=4", "--nccl-ras=on", *worker(tmp_path, "behind")) as job:
        wait_until_ready(job, 4)
        for _ in range(2):
            assert f"NCCL: {COUNTS}" in stacks()
        assert json.loads(stacks("--format=json"))["nccl_ras"]["communicators"] == 1
        assert "NCCL" not in stacks("--rank=1")  # which is about this rank alone
        end(job)


def test_workers_that_are_stopped_are_passed_over(tmp_path):
    with Job("--nproc-per-node=3", "--nccl-ras=on", *worker(tmp_path, "stopped")) as job:
        wait_until_ready(job, 3)
        for _ in range(2):
            assert "rank 2 at 811" in stacks()
        end(job)


@pytest.mark.parametrize("how", ["silent", "garbage", "endless", "closes"])
def test_a_faulty_listener_costs_time_only(how, tmp_path):
    with Job("--nproc-per-node=3", "--nccl-ras=on", *worker(tmp_path, how)) as job:
        wait_until_ready(job, 3)
        shown = stacks("--timeout=10s")
        assert "NCCL" not in shown and "\x1b" not in shown and "rank" in shown, shown
        end(job)


def addresses(*options, **env):
    job = run(*options, "sh", "-c", "echo ${NCCL_RAS_ADDR-none}", env=clean_env(**env))
    assert job.p.returncode == 0, job.err
    return job.out.split()


def test_each_node_of_a_job_has_an_address_of_its_own():
    found = addresses("--simulate-nodes=2", "--nproc-per-node=2", "--nccl-ras=on")
    assert len(found) == 4 and len(set(found)) == 2 and all(a.startswith("127.0.0.1:") for a in found)
    assert addresses("--nproc-per-node=1", "--nccl-ras=on", NCCL_RAS_ADDR="localhost:28028") == ["localhost:28028"]
    assert addresses("--nproc-per-node=1", CUDA_VISIBLE_DEVICES="") == ["none"]  # without GPUs there is no NCCL
    assert addresses("--nproc-per-node=1", "--nccl-ras=off", CUDA_VISIBLE_DEVICES="0") == ["none"]
