"""Invalid input: ddrun prints one sentence, exits with 2, and has started nothing."""

import os
import socket
import stat
import subprocess

import pytest

from support import DDRUN, KEY, LIMIT, Job, clean_env, free_port, program, run, without_tips

SCRIPT = program("show_env.py")


def says(job, *words):
    assert job.p.returncode == 2, (job.p.returncode, job.err)
    assert len(without_tips(job.err)) == 1, f"not one sentence and its tips: {job.err}"
    assert job.out == "", "something was started"
    for word in words:
        assert word in job.err, f"{word!r} is not in: {job.err}"


@pytest.mark.parametrize("args, words", [
    ([], ["SCRIPT"]),
    (["--bogus", SCRIPT], ["--bogus"]),
    (["--nnodes=0", SCRIPT], ["--nnodes", "'0'"]),
    (["--nnodes=3:2", SCRIPT], ["--nnodes", "minimum 3 exceeds maximum 2"]),
    (["--nnodes=3:", SCRIPT], ["--nnodes", "MIN:MAX"]),
    (["--nproc-per-node=0", SCRIPT], ["--nproc-per-node", "0"]),
    (["--nproc-per-node=many", SCRIPT], ["--nproc-per-node: ", "'many'"]),
    (["--nproc-per-node=gpu", SCRIPT], ["--nproc-per-node", "GPU"]),
    (["--max-restarts=abc", SCRIPT], ["--max-restarts", "abc"]),
    (["--hosts=node[1-", SCRIPT], ["node[1-"]),
    (["--hosts=n[0-99999999][0-9]", SCRIPT], ["65536"]),
    (["--hosts=other[1-3]", SCRIPT], ["other[1-3]", "--launcher=ssh"]),
    (["--hostfile=/nonexistent/hosts", SCRIPT], ["/nonexistent/hosts"]),
    (["--nnodes=2", "--node-rank=2", "--master-addr=127.0.0.1", SCRIPT], ["--node-rank"]),
    (["nosuchprogram-of-ddrun"], ["nosuchprogram-of-ddrun"]),
    (["nosuchscript.py"], ["nosuchscript.py"]),
    (["--module", "--no-python", "x"], ["--module", "--no-python"]),
    (["-r", "5", SCRIPT], ["5"]),
    (["--log-dir=/proc/nope", "-r", "3", SCRIPT], ["/proc/nope"]),
    (["--log-level=loud", SCRIPT], ["loud", "debug"]),
    (["--simulate-nodes=100000", SCRIPT], ["--simulate-nodes"]),
    (["--simulate-nodes=0", SCRIPT], ["--simulate-nodes", "'0'", "minimum is 1"]),
    (["-np", "0", SCRIPT], ["'0'", "minimum is 1"]),
    (["--simulate-nodes=2", "--nnodes=3", SCRIPT], ["--simulate-nodes", "--nnodes"]),
    (["--simulate-nodes=2", "--hosts=a,b", SCRIPT], ["--simulate-nodes", "--hosts"]),
    (["--standalone", "--nnodes=2", SCRIPT], ["--standalone", "--nnodes"]),
    (["--standalone", "--simulate-nodes=2", SCRIPT], ["--standalone", "--simulate-nodes"]),
    (["--launcher=ssh", SCRIPT], ["--launcher=ssh", "--hosts"]),
    (["--launcher=ssh", "--hosts=a,b", "-p", "2222", SCRIPT], ["--launch-command"]),
    (["--launcher=ssh", "--hosts=localhost,b", "--launch-command= ", SCRIPT], ["--launch-command is empty"]),
    (["-p", "gpu", SCRIPT], ["-p: ", "'gpu'", "partition"]),
    (["-np", "2", "echo", "a", ":", "-np", "1", "echo", "b"], ["':'", "mpirun", "--wrap="]),
    (["--multi-prog", "programs.conf"], ["--multi-prog", "--wrap="]),
    (["-x", SCRIPT], ["SCRIPT", f"'{SCRIPT[:100]}'", "-x"]),
    (["--nproc-per-node=2"], ["SCRIPT", "tip: "]),
    (["--iface=nosuchnet", SCRIPT], ["--iface=nosuchnet", "lo"]),
    (["--shutdown-timeout=soon", SCRIPT], ["--shutdown-timeout", "soon"]),
])
def test_one_sentence_and_exit_code_2(args, words):
    says(run(*args), *words)


def test_names_that_no_plan_has_room_for_are_refused_before_anybody_waits(tmp_path):
    """The names of the 40000 nodes have no numbers that could be folded into ranges."""
    letters = [chr(ord("a") + i) for i in range(26)]
    names = ["localhost"] + [f"a-rather-long-name-{a}{b}{c}{d}" for a in "ab" for b in letters for c in letters for d in letters]
    (tmp_path / "hosts").write_text("\n".join(names[:40000]) + "\n")
    job = run(f"--hostfile={tmp_path}/hosts", "--master-addr=127.0.0.1", "--node-rank=0", "--insecure", SCRIPT)
    says(job, "35153 nodes", "512 KiB")


@pytest.mark.parametrize("file, stdin", [("pipe", ""), ("<(echo localhost)", ""), ("/dev/stdin", "< <(echo localhost)")])
def test_a_pipe_is_no_hostfile(tmp_path, file, stdin):
    """ddrun would read it twice; the named pipe has no writer."""
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run(["bash", "-c", f"{DDRUN} --hostfile={file} {SCRIPT} {stdin}"], cwd=tmp_path, env=clean_env(), capture_output=True,
                          text=True, timeout=LIMIT)
    assert done.returncode == 2 and done.stdout == "" and " is a pipe, but ddrun reads it several times" in done.stderr, done


@pytest.mark.parametrize("command", ["report", "timeline"])
def test_ddctl_reads_a_pipe_of_the_shell_but_waits_for_no_writer(tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    ddctl = os.path.join(os.path.dirname(DDRUN), "ddctl")
    run(f"--{command}={tmp_path}/file", "true")

    def ask(file):
        return subprocess.run(["bash", "-c", f"{ddctl} {command} {file}"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    refused = ask("pipe")
    assert refused.returncode == 2 and "cannot read 'pipe': it is a named pipe" in refused.stderr, refused
    assert [ask(file).stdout for file in ("<(sleep 0.1; cat file)", "/dev/stdin < <(sleep 0.1; cat file)")] == [ask("file").stdout] * 2


@pytest.mark.parametrize("framework, variable", [("tensorflow", "TF_CONFIG"), ("paddle", "PADDLE_TRAINER_ENDPOINTS")])
def test_more_workers_than_one_variable_can_name_are_refused_before_anybody_waits(framework, variable):
    where = ["--master-addr=127.0.0.1", f"--master-port={free_port()}", "--node-rank=0", "--insecure"]
    job = run("--nnodes=2000", "--nproc-per-node=8", f"--framework={framework}", *where, SCRIPT)
    assert job.p.returncode == 2 and job.out == "", job.err
    said = [line for line in without_tips(job.err) if "--insecure" not in line]
    assert len(said) == 1 and variable in said[0] and "16000" in said[0], job.err


def test_a_port_in_use_is_named_with_its_holder():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        says(run(f"--master-port={port}", SCRIPT), f"port {port} is in use by ", f"(pid {os.getpid()})", "tip: omit --master-port")
        says(run(f"--rdzv-endpoint=localhost:{port}", "--nnodes=1", SCRIPT), f"port {port} is in use by ", "tip: choose another port for --rdzv-endpoint")


def host_args(tmp_path):
    return ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]


def test_a_key_file_that_is_not_there(tmp_path):
    says(run(*host_args(tmp_path), f"--key-file={tmp_path}/none", SCRIPT), f"{tmp_path}/none")


def test_a_key_file_that_others_may_read(tmp_path):
    key = tmp_path / "key"
    key.write_text("secret secret secret secret secret")
    key.chmod(0o644)
    says(run(*host_args(tmp_path), f"--key-file={key}", SCRIPT), str(key), "chmod")


def test_an_empty_key_file(tmp_path):
    key = tmp_path / "key"
    key.touch(mode=stat.S_IRUSR)
    says(run(*host_args(tmp_path), f"--key-file={key}", SCRIPT), str(key), "empty")


def test_tasks_per_node_without_nproc():
    env = clean_env(SLURM_JOB_ID="7", SLURM_STEP_ID="0", SLURM_STEP_NODELIST=os.uname().nodename, SLURM_NODEID="0", SLURM_PROCID="0",
                    SLURM_LOCALID="0", SLURM_STEP_TASKS_PER_NODE="4", SLURM_STEP_NUM_TASKS="4", SLURM_NTASKS="4",
                    SLURM_JOB_NODELIST=os.uname().nodename, SLURMD_NODENAME=os.uname().nodename, SLURM_STEP_NUM_NODES="1")
    says(run(SCRIPT, env=env), "--ntasks-per-node=1", "--nproc-per-node=4")


@pytest.mark.parametrize("args", [["--bogus", SCRIPT], ["--nproc-per-node=0", SCRIPT], [], ["--standalone", "--nnodes=2", SCRIPT]])
def test_what_all_processes_of_a_step_find_wrong_is_said_once(args):
    step = [run(*args, env=clean_env(SLURM_PROCID=str(i), SLURM_NODEID=str(i))) for i in range(3)]
    assert [job.p.returncode for job in step] == [2, 2, 2]
    says(step[0])
    assert [job.err for job in step[1:]] == ["", ""]


def test_a_wrong_variable_is_said_by_the_node_that_has_it():
    says(run(SCRIPT, env=clean_env(SLURM_PROCID="1", SLURM_NODEID="1", DDRUN_MAX_RESTARTS="abc")), "DDRUN_MAX_RESTARTS", "abc")


def test_a_misspelt_variable_is_told_with_the_right_one():
    job = run("true", env=clean_env(DDRUN_MAX_RESTART="3", DDRUN_LABELS="1", DDRUN_OF_MY_OWN="x"))
    assert job.p.returncode == 0
    said = sorted(job.err.splitlines())
    assert len(said) == 2, job.err
    assert "DDRUN_LABELS" in said[0] and "DDRUN_LABEL?" in said[0]
    assert "DDRUN_MAX_RESTART " in said[1] and "DDRUN_MAX_RESTARTS?" in said[1]


def test_variables_of_another_machine_are_refused_unless_this_one_alone_is_wanted():
    env = clean_env(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="elsewhere[1-2]", SLURM_NNODES="2")
    says(run("true", env=env), "elsewhere[1-2]", "unset SLURM_*", "--nnodes=1")
    job = run("--nnodes=1", "true", env=env)
    assert job.p.returncode == 0, job.err
    assert "elsewhere[1-2]" in job.err and "ignor" in job.err


def test_what_one_node_cannot_do_ends_the_job_on_all_nodes_at_once():
    env = clean_env(DDRUN_KEY=KEY)
    common = ["--nnodes=3", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--rdzv-id=one-cannot"]
    rest = [Job(*common, f"--node-rank={i}", "--log-level=debug", "sleep", "100", env=env) for i in (0, 1)]
    with rest[0], rest[1]:
        rest[0].errors("event=join", 2)  # a node that starts after the end of the job waits for another job
        with Job(*common, "--node-rank=2", "nosuchprogram-of-ddrun", env=env) as bad:
            assert [job.wait() for job in (*rest, bad)] == [2, 2, 2]
            lines = [line for job in (*rest, bad) for line in (job.errors_seen + job.err).splitlines()]
            said = [line for line in lines if "nosuchprogram-of-ddrun" in line and ": debug: " not in line]
            assert len(said) == 1, said
            for job in (*rest, bad):
                job.assert_nothing_left()


def test_one_node_under_salloc_is_the_host_that_salloc_runs_on():
    env = clean_env(SLURM_SUBMIT_HOST=os.uname().nodename, SLURM_JOB_ID="30", SLURM_JOB_NODELIST="node[1-2]")
    job = run("--nnodes=1", SCRIPT, env=env)
    assert job.p.returncode == 0 and job.err == "", job.err


def test_one_node_of_a_list_without_this_host_is_none():
    says(run("--nnodes=1", "--hosts=other[1-2]", SCRIPT), "--hosts", "other[1-2]")
