"""Faults of starters, with stand-ins for ssh: no other machine is needed."""

import os
import re
import resource
import select
import signal
import socket

import pytest

from support import DDRUN, KEY, LIMIT, Job, clean_env, marked, run, some_line, until, without_tips

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

ELSEWHERE = "198.51.100"  # unassigned addresses (RFC 5737); nothing is sent there


@pytest.fixture
def starter(tmp_path):
    """Return a function that writes a program in place of ssh, whose first argument is the host."""
    def write(text):
        path = tmp_path / "starter"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return f"--launch-command={path}"
    return write


def start(command, hosts, *options, worker=("true",), env=None):
    return Job("--launcher=ssh", command, f"--hosts={hosts}", "--nproc-per-node=1", "--shutdown-timeout=1s", *options, *worker,
               env=env or clean_env())


def here(n):
    return ",".join([socket.gethostname()] + [f"{ELSEWHERE}.{i + 1}" for i in range(n)])


def test_a_starter_that_hangs_holds_nobody_once_the_job_has_ended(starter):
    """Also where the job may continue without this machine's node."""
    with start(starter("exec sleep 600\n"), here(1), "--max-restarts=1", "--rdzv-timeout=1s") as job:
        assert job.wait() == 1
        assert "timed out" in job.err, job.err


def test_a_job_that_needs_a_node_that_was_not_started_ends(starter):
    """However many restarts the job has: nothing else starts that node."""
    with start(starter("exit 255\n"), here(1), "--max-restarts=3", f"--rdzv-timeout={2 * LIMIT}s") as job:
        assert job.wait() == 1
        assert some_line(job.err, "cannot start ddrun", f"{ELSEWHERE}.1", "code 255")


def test_a_job_ends_when_too_few_nodes_can_still_come(starter):
    with start(starter("exit 255\n"), here(2), "--nnodes=2:3", f"--rdzv-timeout={2 * LIMIT}s") as job:
        assert job.wait() == 1
        assert job.err.count("cannot start ddrun on ") == 2 and job.err.count("continuing without") == 1


def test_a_wrong_number_of_hosts_is_named_on_a_host_that_is_none_of_them():
    job = run("--nnodes=2", "--hosts=node[1-3]", "--launcher=ssh", "true")
    assert job.p.returncode == 2 and some_line(job.err, "error", "--nnodes=2", "3 nodes", "node[1-3]"), job.err
    assert some_line(job.err, "tip", "--nnodes=2:2"), job.err


@pytest.mark.parametrize("sig, text", [(signal.SIGTERM, "exec sleep 600"), (signal.SIGINT, "sleep 600; :")])
def test_a_signal_ends_starters_that_hang(starter, tmp_path, sig, text):
    """This machine is no node of the job, so nothing else could end them. Processes that a script has started end, too."""
    with start(starter(f"touch {tmp_path}/$1; {text}\n"), f"{ELSEWHERE}.1,{ELSEWHERE}.2", f"--shutdown-timeout={5 * LIMIT}s") as job:
        until(lambda: len(list(tmp_path.glob("198*"))) == 2 and len(job.processes("sleep")) == 2, LIMIT)
        job.p.send_signal(sig)
        assert job.wait() == 128 + sig
        assert "cannot start ddrun" not in job.err
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))


def test_a_starter_that_leaves_something_behind_leaves_nothing(starter):
    with start(starter("sleep 600 & exit 3\n"), f"{ELSEWHERE}.1,{ELSEWHERE}.2") as job:
        assert job.wait() == 1
        assert some_line(job.err, "cannot start ddrun", "--launch-command", "code 3")  # the first failure ends the start, and with it the other starter
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))


def test_an_environment_that_is_too_large_is_said_before_anything_starts(starter, tmp_path):
    env = clean_env(**{f"V{i}": "" for i in range(70000)})
    with start(starter(f"touch {tmp_path}/started\n"), here(1), worker=("touch", f"{tmp_path}/started"), env=env) as job:
        assert job.wait() == 2
        assert some_line(job.err, "ddrun: error: ", "environment", "8 MiB") and len(without_tips(job.err)) == 1, job.err
        assert not (tmp_path / "started").exists()


def test_nodes_may_be_more_than_file_descriptors(starter, tmp_path):
    """The starters have the limit with which ddrun was started."""
    command = starter(f"ulimit -Sn >{tmp_path}/$1.new; mv {tmp_path}/$1.new {tmp_path}/$1; exec sleep 600\n")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hosts = ",".join(f"{ELSEWHERE}.{i}" for i in range(1, 41))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        job = start(command, hosts, "--launch-fanout=0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with job:
        until(lambda: len([p for p in tmp_path.glob("198*") if p.suffix != ".new"]) == 40, LIMIT, lambda: job.p.poll())
        assert {(tmp_path / f"{ELSEWHERE}.{i}").read_text() for i in range(1, 41)} == {"100\n"}
        job.p.terminate()
        assert job.wait() == 128 + signal.SIGTERM


def test_who_calls_and_says_nothing_keeps_no_node_out(starter, tmp_path):
    """Where the nodes fetch their launch package, the oldest silent connection gives way to the next caller."""
    command = starter(f'echo "$@" >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/words; exec sleep 600\n')
    with start(command, f"{ELSEWHERE}.1,{ELSEWHERE}.2") as job:
        until((tmp_path / "words").exists, LIMIT)
        port = int(re.search(r"--launched=\d+/(\d+)/", (tmp_path / "words").read_text()).group(1))
        callers = []
        closed = []
        try:
            while not closed and len(callers) < 1000:
                callers.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
                closed = select.select(callers, [], [], 0.01 if len(callers) > 250 else 0)[0]
            assert closed[0] is callers[0] and callers[-1] not in closed
        finally:
            for caller in callers:
                caller.close()
        job.p.terminate()
        assert job.wait() == 128 + signal.SIGTERM


def test_workers_of_the_starting_machine_have_each_variable_once(starter):
    """The key is not among them. A duplicated environment would reach the size limit at half the size."""
    options = ["--nnodes=1:2", "--last-call=10ms", "--no-python"]
    with start(starter("exit 255\n"), here(1), *options, worker=("cat", "/proc/self/environ"),
               env=clean_env(DDRUN_KEY=KEY)) as job:
        assert job.wait() == 0, job.err
        names = [entry.split("=")[0] for entry in job.out.split("\0") if entry]
        assert sorted(names) == sorted(set(names)) and "RANK" in names and "DDRUN_KEY" not in names


def variables(job):
    assert job.wait() == 0, job.err
    return dict(entry.split("=", 1) for entry in job.out.split("\0") if entry)


@pytest.mark.parametrize("options, left", [
    ([], {"WANTED_A", "WANTED_B", "OTHER"}),
    (["--launch-env=WANTED_*,NONE"], {"WANTED_A", "WANTED_B"}),
    (["--launch-env=NONE", "-x", "WANTED_A", "-x", "OF_ITS_OWN=1"], {"WANTED_A"}),
    (["--launch-env-exclude=*_B,OTHER"], {"WANTED_A"}),
    (["--launch-env=WANTED_*", "--launch-env-exclude=WANTED_A"], {"WANTED_B"}),
])
def test_of_the_shells_variables_those_go_that_are_wanted(starter, options, left):
    """The starting machine's own workers are no exception. PATH and HOME need no option."""
    env = clean_env(DDRUN_KEY=KEY, WANTED_A="1", WANTED_B="2", OTHER="3")
    with start(starter("exit 255\n"), here(1), "--nnodes=1:2", "--last-call=10ms", "--no-python", *options,
               worker=("cat", "/proc/self/environ"), env=env) as job:
        found = variables(job)
    assert left == {"WANTED_A", "WANTED_B", "OTHER"} & set(found)
    assert found["PATH"] == env["PATH"] and found["HOME"] and found["RANK"] == "0"


def test_a_starter_of_all_nodes_has_the_wanted_variables_only(tmp_path):
    """The starter keeps the variables that it reads itself."""
    env = clean_env(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=here(1), SLURM_NNODES="2", SLURM_NTASKS="2", WANTED="1", OTHER="3")
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\nexec cat /proc/self/environ\n")
    program.chmod(0o755)
    with Job("--launcher=srun", f"--launch-command={program}", "--launch-env=WANTED", "true", env=env) as job:
        found = variables(job)
    assert found["WANTED"] == "1" and found["SLURM_JOB_ID"] == "7" and "OTHER" not in found


def test_the_doctor_looks_with_what_the_job_would_have(starter, tmp_path):
    """The options about where nodes meet go to each node."""
    said = ["--key-file=/k", "--munge-socket=/m", "--rdzv-endpoint=node1:1234", "--master-addr=node1", "--master-port=29999", "--iface=lo",
            "--insecure"]
    command = starter(f'echo "$*" >{tmp_path}/$1.new; mv {tmp_path}/$1.new {tmp_path}/$1; exit 255\n')
    with Job("--launcher=ssh", command, f"--hosts={ELSEWHERE}.1,{ELSEWHERE}.2", "--doctor", *said, "train.py", env=clean_env()) as job:
        assert job.wait() == 1, job.err
        assert some_line(job.out, "0 of 2 nodes") and some_line(job.out, "198.51.100.[1-2]: ", "start"), job.out
    for i in (1, 2):
        words = (tmp_path / f"{ELSEWHERE}.{i}").read_text().split()
        assert set(said) <= set(words) and "--local" in words and "train.py" not in words


@pytest.mark.parametrize("program, jobs", [("blaunch", {"LSB_JOBID": "9", "LSB_HOSTS": "far1 far2"}),
                                           ("qrsh", {"JOB_ID": "9", "SGE_ROOT": "/sge", "PE_HOSTFILE": "FILE"}),
                                           ("oarsh", {"OAR_JOB_ID": "9", "OAR_NODEFILE": "FILE"})])
def test_another_machines_job_is_not_started(tmp_path, program, jobs):
    """ddrun has inherited the job's variables; it starts nothing on the job's nodes, and prints why."""
    (tmp_path / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / program).chmod(0o755)
    (tmp_path / "nodes").write_text("far1 1 q x\nfar2 1 q x\n" if program == "qrsh" else "far1\nfar2\n")
    jobs = {k: str(tmp_path / "nodes") if v == "FILE" else v for k, v in jobs.items()}
    with Job("--nproc-per-node=1", "true", env=clean_env(PATH=f"{tmp_path}:{os.environ['PATH']}", **jobs)) as job:
        assert job.wait() == 2
        assert some_line(job.err, "another machine", "far[1-2]"), job.err
        assert not (tmp_path / "started").exists()


def test_jsrun_is_asked_for_the_nodes_that_take_part(tmp_path):
    """Under CSM the node that runs the script is listed first, but is no node of the job."""
    (tmp_path / "jsrun").write_text('#!/bin/sh\nprintf "%s " "$@"\n')
    (tmp_path / "jsrun").chmod(0o755)
    hosts = f"{socket.gethostname()} 1 h1 42 h2 42"
    env = clean_env(PATH=f"{tmp_path}:{os.environ['PATH']}", LSB_JOBID="9", LSB_MCPU_HOSTS=hosts, CSM_ALLOCATION_ID="4")
    with Job("--nproc-per-node=1", "true", env=env) as job:
        assert job.wait() == 0, job.err
        assert job.out.startswith("-n 2 -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS -b rs "), job.out
