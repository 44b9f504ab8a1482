"""ddrun on one machine: the environment of workers, the ends of jobs, and that nothing is left. Simulated nodes run the code of
real ones."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from support import LIMIT, Job, clean_env, json_lines, marked, program, run, some_line, told, until, with_torch

NODES = [1, 3]


@pytest.mark.parametrize("nodes", NODES)
def test_each_rank_runs_once_with_the_environment_of_torchrun(nodes):
    job = run(f"--simulate-nodes={nodes}", "--nproc-per-node=2", program("show_env.py"), "--lr", "3", "x y")
    assert job.p.returncode == 0, job.err
    workers = json_lines(job.out)
    assert all(w["argv"] == ["--lr", "3", "x y"] for w in workers)
    envs = sorted((w["env"] for w in workers), key=lambda e: int(e["RANK"]))
    world = 2 * nodes
    assert [int(e["RANK"]) for e in envs] == list(range(world))
    for rank, e in enumerate(envs):
        got = {k: e.get(k) for k in ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                                     "ROLE_RANK", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE")}
        assert got == {"LOCAL_RANK": str(rank % 2), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": str(rank // 2),
                       "GROUP_WORLD_SIZE": str(nodes), "ROLE_RANK": str(rank), "ROLE_NAME": "default",
                       "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
        assert e["MASTER_ADDR"].startswith("127.") and 1024 <= int(e["MASTER_PORT"]) <= 65535
        assert "DDRUN_KEY" not in e
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"], e["TORCHELASTIC_RUN_ID"]) for e in envs}) == 1


def test_all_is_silent_while_all_is_well():
    job = run("--nproc-per-node=2", "true")
    assert (job.p.returncode, job.out, job.err) == (0, "", "")


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("how, code, says", [
    ("7", 7, "failed (exit code 7)"),
    ("KILL", 137, "was killed by signal 9 (SIGKILL)"),
    ("SEGV", 139, "was killed by signal 11 (SIGSEGV)"),
])
def test_the_first_failure_ends_all_and_gives_the_code(nodes, how, code, says):
    last = 2 * nodes - 1
    job = run(f"--simulate-nodes={nodes}", "--nproc-per-node=2", program("end.py"), str(last), how)
    assert job.p.returncode == code, job.err
    first, *more = told(job.err).strip("\n").splitlines()
    assert re.search(rf"error: rank {last} on sim{nodes} {re.escape(says)}$", first), job.err
    assert len(more) <= 5 and all(line.startswith("  ") for line in more), job.err
    assert re.search(rf"others: {last} (was|were) stopped", job.err), job.err


@pytest.mark.parametrize("text", [r"\377", r"\303", r"a\355\240\200"])
def test_a_failure_counts_whatever_bytes_the_worker_wrote(text):
    job = run("--label", "sh", "-c", f"printf '{text}' >&2; exit 3")
    assert job.p.returncode == 3, job.err


def test_workers_that_ignore_sigterm_are_killed_after_the_grace():
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--shutdown-timeout=0.3s", program("end.py"), "0", "9", "deaf")
    assert job.p.returncode == 9, job.err


@pytest.mark.parametrize("how", ["exit", "wait"])
def test_children_of_workers_are_ended_even_daemonised_ones(how):
    with Job("--simulate-nodes=2", "--nproc-per-node=2", "--shutdown-timeout=0.3s", program("family.py"),
             env=clean_env(FAMILY_HOW=how)) as job:
        if how == "wait":
            seen = job.line("ready")
            while seen.count("ready") < 4:
                seen += job.line("ready")
            job.p.send_signal(signal.SIGTERM)
        assert job.wait() == (143 if how == "wait" else 0), job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("victim", ["guardian", "agent", "last agent", "ddrund", "worker"])
def test_kill_9_of_any_process_leaves_nothing(nodes, victim):
    with Job(f"--simulate-nodes={nodes}", "--nproc-per-node=2", "--shutdown-timeout=1s", program("family.py")) as job:
        seen = job.line("ready")
        while seen.count("ready") < 2 * nodes:
            seen += job.line("ready")
        agents = sorted(job.agents())
        pid = {"guardian": lambda: job.p.pid, "agent": lambda: agents[0], "last agent": lambda: agents[-1],
               "ddrund": lambda: job.processes("ddrund")[0],
               "worker": lambda: [w for w in job.workers() if os.getsid(w) == w][0]}[victim]()
        os.kill(pid, signal.SIGKILL)
        code = job.wait()
        until(lambda: not marked(job.mark), say="the end of all processes")
        assert code == {"guardian": -9, "worker": 137}.get(victim, code)
        if victim == "guardian" and nodes > 1:
            assert some_line(job.err, "stopped by SIGTERM: the process that started ddrun on sim", " has died"), job.err
        assert code != 0
        job.assert_nothing_left()


def test_who_becomes_an_orphan_only_after_the_agent_was_killed_is_not_waited_for():
    """The process ends a little after SIGTERM, and only then orphans its own child."""
    late = "import signal, subprocess, time; subprocess.Popen(['sleep', '600']); " \
           "signal.signal(15, lambda *_: (time.sleep(0.3), exit(0))); print('ready', flush=True); time.sleep(600)"
    with Job("--shutdown-timeout=10m", "sh", "-c", f'{sys.executable} -c "$1" & wait', "sh", late) as job:
        job.line("ready")
        os.kill(job.agents()[0], signal.SIGKILL)
        assert job.wait() == 137, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("sig, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_to_ddrun_ends_the_job(nodes, sig, code):
    with Job(f"--simulate-nodes={nodes}", "--nproc-per-node=2", "--shutdown-timeout=1s", program("family.py")) as job:
        seen = job.line("ready")
        while seen.count("ready") < 2 * nodes:
            seen += job.line("ready")
        job.p.send_signal(sig)
        assert job.wait() == code, job.err
        job.assert_nothing_left()


def test_a_signal_to_any_agent_ends_the_job_everywhere():
    with Job("--simulate-nodes=3", "--nproc-per-node=1", "--shutdown-timeout=1s", program("family.py")) as job:
        seen = job.line("ready")
        while seen.count("ready") < 3:
            seen += job.line("ready")
        os.kill(max(job.agents()), signal.SIGTERM)
        assert job.wait() == 143, job.err
        job.assert_nothing_left()


def test_ctrl_c_on_a_terminal_ends_the_job():
    pid, fd = pty.fork()
    if pid == 0:
        from support import DDRUN
        env = clean_env(DDRUN_TEST_MARK="pty-%d" % os.getpid())
        os.execve(DDRUN, [DDRUN, "--nproc-per-node=2", "--shutdown-timeout=1s", program("family.py")], env)
    seen = b""
    while seen.count(b"ready") < 2:
        seen += os.read(fd, 4096)
    os.write(fd, b"\x03")
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 130
    assert marked("DDRUN_TEST_MARK=pty-%d" % pid) == []


def test_usr1_does_not_end_ddrun():
    with Job("--nproc-per-node=1", "--shutdown-timeout=1s", program("family.py")) as job:
        job.line("ready")
        for pid in job.processes("ddrun") + job.processes("ddrund"):
            os.kill(pid, signal.SIGUSR1)
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143, job.err


def test_a_restart_starts_all_ranks_again():
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=2", program("third_time.py"))
    assert job.p.returncode == 0, job.err
    seen = sorted((w["attempt"], w["rank"]) for w in json_lines(job.out))
    assert [s for s in seen if s[0] == 2] == [(2, r) for r in range(4)]
    assert {s[0] for s in seen} == {0, 1, 2}
    assert [re.search(r"restarting \((.*)\)", line)[1] for line in told(job.err).splitlines()] == [
        f"{n} of 2" for n in (1, 2)], job.err


def test_labels_and_files(tmp_path):
    logs = tmp_path / "logs"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--label", "sh", "-c", "echo one; echo two")
    assert sorted(job.out.splitlines()) == sorted(f"[{r}]: {t}" for r in range(4) for t in ("one", "two"))
    job = run("--nproc-per-node=2", f"--log-dir={logs}", "-r", "3", "sh", "-c", "echo out$RANK; echo err$RANK >&2")
    assert job.out == "" and job.p.returncode == 0, job.err
    found = {str(p.relative_to(logs)).split(os.sep, 1)[1]: p.read_text() for p in logs.rglob("*.log")}
    assert found == {f"attempt_0/{r}/{s}.log": f"{s[3:]}{r}\n" for r in range(2) for s in ("stdout", "stderr")}


def test_redirected_output_without_a_log_dir_says_where_it_is():
    with Job("-r", "3", "sh", "-c", "echo here") as job:
        assert job.wait() == 0 and job.out == ""
        line, = job.err.splitlines()
        folder = line.split("'")[1]
        assert folder.startswith(job.places["TMPDIR"].name)
        with open(f"{folder}/attempt_0/0/stdout.log", encoding="utf-8") as f:
            assert f.read() == "here\n"


def test_gpus_are_counted_from_the_variables():
    job = run("--nproc-per-node=gpu", program("show_env.py"), env=clean_env(CUDA_VISIBLE_DEVICES="3,1"))
    envs = [w["env"] for w in json_lines(job.out)]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in envs] == ["3,1", "3,1"]
    job = run("--simulate-nodes=2", program("show_env.py"), env=clean_env(CUDA_VISIBLE_DEVICES="0,1,2,3"))
    envs = sorted((w["env"] for w in json_lines(job.out)), key=lambda e: int(e["RANK"]))
    assert [e["CUDA_VISIBLE_DEVICES"] for e in envs] == ["0,1", "0,1", "2,3", "2,3"]


def test_nccl_regards_each_simulated_node_as_a_host():
    def hosts(*args, **env):
        return [w["env"].get("NCCL_HOSTID") for w in json_lines(run("--nproc-per-node=2", *args, program("show_env.py"), env=clean_env(**env)).out)]

    simulated = hosts("--simulate-nodes=2")
    assert len(simulated) == 4 and len(set(simulated)) == 2 and None not in simulated
    assert set(hosts("--simulate-nodes=2", NCCL_HOSTID="mine")) == {"mine"} and set(hosts()) == {None}


@with_torch
@pytest.mark.parametrize("nodes, each", [(1, 2), (3, 1)])
def test_a_real_training_gives_the_same_gradient_everywhere(nodes, each):
    job = run(f"--simulate-nodes={nodes}", f"--nproc-per-node={each}", program("../train_torch.py"), "--ddp", "--steps", "3")
    assert job.p.returncode == 0, job.err
    ranks = json_lines(job.out)
    assert sorted(r["rank"] for r in ranks) == list(range(nodes * each)) and all(r["equal"] for r in ranks), ranks


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_is_turned_away_from_the_store():
    with tempfile.TemporaryDirectory() as place, Job("--simulate-nodes=2", "--nproc-per-node=1", program("tell_store.py")) as job:
        os.chmod(place, 0o755)
        knock = shutil.copy(program("knock.py"), place)  # readable by the other user, unlike pytest's directories
        os.chmod(knock, 0o644)
        _, host, port = job.line("store").split()
        told = {}
        for user in (0, 65534):
            done = subprocess.run(["/usr/bin/python3", knock, host, port], user=user, group=user, extra_groups=[], cwd="/",
                                  capture_output=True, text=True, check=False, timeout=LIMIT)
            told[user] = done.stdout.strip() or done.stderr
        assert told == {0: "answered", 65534: "turned away"}
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert some_line(job.err, "refused", "uid 65534"), job.err
