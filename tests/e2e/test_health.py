"""Checks before each round: ddrun names an unfit node and excludes it."""

import json
import re
import subprocess

import pytest

from support import BUILD, LIMIT, Job, clean_env, json_lines, program, run, some_line, until
from test_ddctl_job import ddctl
from test_top import job_id

def test_a_node_that_is_not_fit_ends_a_job_that_needs_it():
    job = run("--simulate-nodes=2", "--health-check=echo first; echo ECC errors on GPU 3 >&2; exit 3", program("show_env.py"))
    assert job.p.returncode != 0
    assert "ECC errors on GPU 3" in job.err, job.err
    assert json_lines(job.out) == [], "workers were started"


@pytest.mark.parametrize("option, check, says", [
    ("--health-check=echo ECC errors on GPU 3 >&2; exit 3", "--health-check", "ECC errors on GPU 3"),
    ("--health=storage=/proc", "storage=/proc", "cannot write a temporary file in /proc"),
    ("--health=shm,memory=1048576G", "memory", "less than 1048576.0 GiB"),
    ("--health-check=nosuchprogram-of-ddrun", "--health-check", "not found"),
    ("--health-check=test -d /nonexistent", "--health-check", "--health-check='test -d /nonexistent' exited with code 1"),
])
def test_the_report_names_the_node_and_the_check_that_end_the_job(tmp_path, option, check, says):
    path = tmp_path / "report.json"
    job = run("--simulate-nodes=2", option, f"--report={path}", "true")
    assert job.p.returncode == 1, job.err
    report = json.loads(path.read_text())
    culprit = report["culprit"]
    assert culprit == {"failure": None, "rank": None, "ranks": None, "node": culprit["node"], "blame": "node", "check": check, "why": culprit["why"]}
    assert says in culprit["why"] and report["cause"] == f"{culprit['node']} cannot be used: {culprit['why']}", report
    assert some_line(job.err, f"{culprit['node']} cannot be used: "), job.err
    shown = subprocess.run([f"{BUILD}/ddctl", "report", str(path)], env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert shown.returncode == 0 and report["cause"] in shown.stdout and "culprit" not in shown.stdout, shown.stderr


def test_a_node_that_is_not_fit_is_left_out_where_others_suffice(tmp_path):
    """Only one of the three simulated nodes can create the directory, and its check fails."""
    job = run("--simulate-nodes=3", "--nnodes=2:3", f"--last-call={LIMIT}s", "--nproc-per-node=1",
              f"--health-check=if mkdir {tmp_path}/first 2>/dev/null; then echo no GPU; exit 1; fi", program("show_env.py"))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "excluded", "no GPU")
    assert {w["env"]["WORLD_SIZE"] for w in json_lines(job.out)} == {"2"}


def test_every_round_is_preceded_by_a_check(tmp_path):
    job = run("--simulate-nodes=2", "--max-restarts=2", f"--health-check=mktemp {tmp_path}/run.XXXXXX",
              "sh", "-c", "test $TORCHELASTIC_RESTART_COUNT = 2 || { [ $RANK = 1 ] && exit 3; sleep 600; }")
    assert job.p.returncode == 0, job.err
    assert len(list(tmp_path.iterdir())) == 6, "two nodes, three rounds; none after success"


def test_a_node_is_checked_before_it_goes_on_with_a_spare_one(tmp_path):
    job = run("--simulate-nodes=3", "--nnodes=2:2", f"--health-check=mktemp {tmp_path}/run.XXXXXX",
              "sh", "-c", "test $DDRUN_ROUND = 1 || { [ $RANK = 1 ] && kill -9 $PPID; sleep 600; }")
    assert job.p.returncode == 0, job.err
    assert len(list(tmp_path.iterdir())) == 4, "three nodes at the start, then the one that had a part and is left"


def test_a_node_that_becomes_unfit_is_left_out_of_the_next_round(tmp_path):
    """The check succeeds three times in the first round, and then fails once, on one of the nodes, before the second."""
    check = f"""
if ! [ -e {tmp_path}/restarting ]; then exit 0; fi
if mkdir {tmp_path}/lost 2>/dev/null; then echo GPU is lost; exit 1; fi"""
    script = f"""
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
    if [ $RANK = 1 ]; then touch {tmp_path}/restarting; exit 5; fi
    sleep 600
fi
echo "{{\\"world\\": $WORLD_SIZE}}"
until [ -e {tmp_path}/go ]; do sleep 0.05; done"""
    path = tmp_path / "report.json"
    with Job("--simulate-nodes=3", "--nnodes=2:3", "--max-restarts=1", f"--health-check={check}", f"--report={path}", "sh", "-c", script) as job:
        said = until(lambda: [line for line in ddctl("events", f"--job={job_id(job)}").splitlines() if " excluded: " in line], say="the event")
        (tmp_path / "go").touch()
        assert job.wait() == 0, job.err
    assert len(said) == 1 and "GPU is lost" in said[0], said
    assert some_line(job.err, "excluded", "GPU is lost")
    assert [line["world"] for line in json_lines(job.out)] == [2, 2]
    report = json.loads(path.read_text())
    (left,) = report["warnings"]
    assert report["world_size"] == 2 and re.search("^excluded from further rounds: .*GPU is lost", left["text"]), report
    assert f"Z  {left['node']} excluded: " in said[0], said


@pytest.mark.parametrize("command, says", [
    ("sleep 600", "0.2 s"),
    ("exit 7", "code 7"),
    ("kill -9 $$", "code 137"),
    (r"printf '\033[31mred\377\n\n'; exit 1", ": red?"),
    ("nosuchprogram-of-ddrun", "not found"),
])
def test_the_reason_is_said(command, says):
    limit = "200ms" if command.startswith("sleep") else "60s"
    job = run(f"--health-check={command}", f"--health-timeout={limit}", "true")
    assert job.p.returncode != 0 and says in job.err, job.err


def test_a_job_can_be_stopped_while_its_node_is_checked(tmp_path):
    with Job(f"--health-check=touch {tmp_path}/begun; sleep 600", "true") as job:
        until((tmp_path / "begun").exists, say="the check has begun")
        job.p.terminate()
        assert job.wait() == 143, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("checks", ["all", "none", "shm,disk", "memory=1M", "storage=/tmp,disk=/tmp:1K"])
def test_a_node_in_order_is_fit(checks):
    job = run(f"--health={checks}", "true")
    assert (job.p.returncode, job.err) == (0, "")


@pytest.mark.parametrize("checks, says", [
    ("storage=/proc", "cannot write a temporary file in /proc"),
    ("memory=1048576G", "less than 1048576.0 GiB"),
    ("disk=/tmp:16777216G", "the file system of /tmp has only"),
])
def test_a_node_that_lacks_what_the_job_needs_is_not_fit(checks, says):
    job = run(f"--health={checks}", "echo", "started")
    assert job.p.returncode == 1 and says in job.err, job.err
    assert job.out == ""


@pytest.mark.parametrize("checks, says", [("gpu,disc", "'disc'"), ("storage=scratch", "absolute path"), ("memory=64X", "memory=64G"),
                                          ("disk=/scratch:", "disk=/scratch:10G"), ("memory", "memory=SIZE")])
def test_a_check_that_does_not_exist_is_refused(checks, says):
    job = run(f"--health={checks}", "true")
    assert job.p.returncode == 2 and says in job.err and "--health" in job.err, job.err
