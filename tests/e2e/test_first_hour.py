"""The first hour of a user: logs, Ctrl-C, help, and errors with the tip that fits."""

import os
import re
import signal
import subprocess

import pytest

from support import DDRUN, KEY, LIMIT, Job, clean_env, program, run, some_line, until
from test_terminal import Terminal, python

SCRIPT = program("show_env.py")
DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
ME = os.uname().nodename
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": ME, "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_NODELIST": ME, "SLURMD_NODENAME": ME, "SLURM_STEP_NUM_NODES": "1"}


def files(folder):
    return {os.path.join(os.path.basename(d), n): open(os.path.join(d, n)).read() for d, _, names in os.walk(folder) for n in names}


# --- logs ---

def test_log_dir_alone_logs_all_output_and_still_shows_it(tmp_path):
    job = run("--nproc-per-node=2", f"--log-dir={tmp_path}/logs", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
    assert job.p.returncode == 0
    assert sorted(job.out.splitlines()) == ["out 0", "out 1"] and sorted(job.err.splitlines()) == ["err 0", "err 1"]
    assert files(tmp_path) == {f"{r}/{s}.log": f"{s[3:]} {r}\n" for r in (0, 1) for s in ("stdout", "stderr")}


def test_log_dir_alone_logs_a_rank_that_has_the_terminal(tmp_path):
    with Terminal(f"--log-dir={tmp_path}/logs", *python("import sys; print('terminal', sys.stdout.isatty())")) as t:
        t.expect("terminal True")
        assert t.wait() == 0
    assert files(tmp_path)["0/stdout.log"].split() == ["terminal", "True"]


@pytest.mark.parametrize("option, logged", [("-r1", {"0/stdout.log"}), ("-t2", {"0/stderr.log"})])
def test_redirects_and_tee_choose_what_is_logged(tmp_path, option, logged):
    run(f"--log-dir={tmp_path}/logs", option, "sh", "-c", "echo out; echo err >&2")
    assert {path for path in files(tmp_path) if path.endswith(".log")} == logged


# --- Ctrl-C ---

def test_a_job_that_takes_its_time_to_stop_says_so():
    with Job("--nproc-per-node=2", "sh", "-c", "trap '' TERM INT; echo ready; while :; do sleep 0.1; done") as job:
        job.line("ready\nready")
        os.kill(job.agents()[0], signal.SIGINT)
        assert "stopping 2 workers" in job.errors("Ctrl-C again to kill")
        os.kill(job.agents()[0], signal.SIGINT)
        assert job.wait() == 130
        job.assert_nothing_left()


def test_a_job_that_stops_at_once_says_nothing_of_it():
    def is_quiet():
        with Job("--nproc-per-node=2", "sh", "-c", "echo ready; exec sleep 600") as job:
            job.line("ready\nready")
            os.kill(job.agents()[0], signal.SIGINT)
            assert job.wait() == 130, job.err
            return "again" not in job.err

    until(is_quiet, say="a stop without a notice")  # a machine that stalls makes the workers take their time


# --- errors ---

def test_one_worker_is_one_rank():
    assert some_line(run("--log-level=info", "true").err, "started 1 worker (rank 0 of 1) ", " ms after ddrun started")
    assert some_line(run("--log-level=info", "--nproc-per-node=2", "true").err, "started 2 workers (ranks 0-1 of 2) ", " ms after ddrun started")


def test_several_tasks_a_node_are_refused_by_one_of_them():
    """srun --ntasks-per-node=2 ddrun --nproc-per-node=2 would start four workers."""
    tasks = [run("--nproc-per-node=2", SCRIPT, env=clean_env(**STEP, SLURM_PROCID=r, SLURM_LOCALID=r)) for r in ("0", "1")]
    assert [t.p.returncode for t in tasks] == [2, 2] and [t.out for t in tasks] == ["", ""]
    assert "2 copies" in tasks[0].err and "--ntasks-per-node=1" in tasks[0].err and tasks[1].err == "", tasks[0].err


def test_several_tasks_a_node_are_several_agents_where_nnodes_says_so(tmp_path):
    jobs = [Job("--nproc-per-node=2", "--nnodes=2", "sh", "-c", "echo $RANK/$WORLD_SIZE", home=str(tmp_path),
                env=clean_env(**STEP, SLURM_PROCID=r, SLURM_LOCALID=r)) for r in ("0", "1")]
    with jobs[0] as a, jobs[1] as b:
        assert (a.wait(), b.wait()) == (0, 0), a.err + b.err
        assert sorted((a.out + b.out).split()) == ["0/4", "1/4", "2/4", "3/4"]


@pytest.mark.parametrize("options", [["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29871"], ["--master-addr=127.0.0.1", "--node-rank=0"]])
def test_a_batch_script_without_srun_is_warned_before_it_waits(options):
    env = clean_env(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=f"{ME},node2", SLURM_NODEID="0", SLURM_PROCID="0", SLURMD_NODENAME=ME)
    job = run("--nnodes=2", *options, "--insecure", "--rdzv-timeout=1s", "true", env=env)
    assert job.p.returncode == 1
    first = job.err.splitlines()[0]
    assert "warning" in first and "2 nodes" in first and "srun" in job.err, job.err


def test_the_second_of_several_tasks_a_node_warns_where_an_endpoint_is_given():
    """srun takes the number of tasks from the script that calls it."""
    step = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "3", "SLURM_STEP_NUM_TASKS": "3"}
    options = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={ME}:29872", "--insecure", "--rdzv-timeout=1s"]
    tasks = [run(*options, "true", env=clean_env(**step, SLURM_PROCID=r, SLURM_LOCALID=r)).err for r in ("0", "1", "2")]
    assert ["srun -N2 --ntasks=2 --ntasks-per-node=1 ddrun" in err for err in tasks] == [False, True, False], tasks


@pytest.mark.parametrize("size, options, warned", [("2", [], True), ("2", ["--nnodes=1"], False), ("1", [], False)])
def test_a_job_of_several_components_is_warned_that_ddrun_uses_the_first(size, options, warned):
    env = clean_env(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=ME, SLURM_HET_SIZE=size, SLURM_NODEID="0", SLURM_PROCID="0", SLURMD_NODENAME=ME)
    job = run(*options, "true", env=env)
    assert job.p.returncode == 0 and ("--het-group=0-1" in job.err) == warned, job.err


@pytest.mark.parametrize("name, text, tip, not_tip", [
    ("job", "#!/bin/sh\necho\n", "ddrun sh ", "python"),
    ("prog", "#!/usr/bin/env -S python3 -u\n", "ddrun python3 ", "env"),
    ("plain", "text\n", "chmod +x", "python"),
    ("a.ipynb", "{}", "nbconvert", "chmod"),
])
def test_a_file_that_is_not_executable_has_the_tip_for_its_kind(tmp_path, name, text, tip, not_tip):
    (tmp_path / name).write_text(text)
    job = run("./" + name, cwd=tmp_path)
    assert job.p.returncode == 2 and tip in job.err and not_tip not in job.err, job.err


def test_commands_of_ddctl_and_options_are_no_programs():
    listed = re.findall(r"^  ([a-z]+) ", subprocess.run([DDCTL, "--help"], capture_output=True, text=True, check=True, timeout=LIMIT).stdout, re.M)
    assert {"doctor", "top"} < set(listed)
    for word in listed:
        tip = "ddrun --help" if word == "help" else f"ddctl {word}"
        assert f"\n  tip: did you mean '{tip}'?\n" in run(word, env=clean_env(PATH="/nonexistent")).err
    assert "did you mean 'ddrun --version'?" in run("version").err


def test_a_tip_from_another_node_ends_its_line(tmp_path):
    """The messages of the launcher follow it."""
    (tmp_path / "train.py").touch()
    env = clean_env(DDRUN_KEY=KEY)
    jobs = [Job("--hosts=127.0.0.1,127.0.0.2", f"--node-rank={r}", "--rdzv-id=tip", "trian.py", env=env, cwd=tmp_path) for r in (0, 1)]
    with jobs[0] as a, jobs[1] as b:
        assert (a.wait(), b.wait()) == (2, 2), a.err + b.err
        assert (a.err + b.err).endswith("\n  tip: did you mean 'train.py'?\n"), a.err + b.err


def test_a_program_that_is_not_there_ends_with_the_code_that_the_manual_names():
    assert run("/nonexistent/program").p.returncode == 2
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man", "ddrun.1.in")) as f:
        status = f.read().split(".SH \"EXIT STATUS\"")[-1]
    two = re.search(r"\.B 2\n(.*?)\.TP", status, re.S)[1]
    assert "the program does not exist" in two


def test_breakpoint_without_a_terminal_has_the_tip_for_pytorch():
    job = run("--nproc-per-node=2", *python("import os\nif os.environ['RANK'] == '1': breakpoint()\nimport time; time.sleep(600)"))
    assert job.p.returncode == 1 and "torch.distributed.breakpoint()" in job.err, job.err


# --- help ---

def test_the_name_torchrun_has_its_own_defaults_in_help(tmp_path):
    torchrun = tmp_path / "torchrun"
    torchrun.symlink_to(DDRUN)

    def default(program_, option):
        text = subprocess.run([program_, f"--help={option}"], capture_output=True, text=True, check=True, env=clean_env(), timeout=LIMIT).stdout
        return re.search(r"default: ([^;)]*)", " ".join(text.split()))[1]
    assert [default(torchrun, o) for o in ("nproc-per-node", "nnodes", "exit-code")] == ["1", "1", "1"]
    assert default(DDRUN, "nproc-per-node") == "one per GPU, or 1 without GPUs"


# --- launchers ---

@pytest.mark.parametrize("args, words, instead", [
    (["torchrun", "--nproc_per_node=4", "train.py"], "torchrun", "--nproc_per_node=4 train.py"),
    (["--label", "/opt/bin/torchrun", "train.py"], "/opt/bin/torchrun", "--label train.py"),
    (["python3", "-u", "-m", "torch.distributed.run", "train.py"], "python3 -u -m torch.distributed.run", "train.py"),
    (["-m", "torch.distributed.run", "train.py"], "torch.distributed.run", "train.py"),
    (["accelerate", "launch", "train.py"], "accelerate launch", "train.py"),
    (["srun", "-n4", "python", "train.py"], "srun", "-n4 python train.py"),
])
def test_a_launcher_in_each_worker_is_named_with_the_command_that_replaces_it(args, words, instead):
    said = run("--dry-run", *args, env=clean_env(PATH="/nonexistent")).err
    before = "" if args[0] == "-m" else " --dry-run"
    assert f"warning: each worker starts '{words}'" in said and f"options: {DDRUN}{before} {instead}\n" in said, said


@pytest.mark.parametrize("args", [["--nproc-per-node=1", "torchrun", "train.py"], ["accelerate", "config"], ["python3", "-c", "pass"],
                                  ["python3"], ["python3", "-m"], ["-m", "torchrun"]])
def test_a_launcher_once_a_node_and_other_programs_are_no_reason_to_warn(args):
    assert "warning" not in run("--dry-run", *args, env=clean_env(PATH="/nonexistent")).err
