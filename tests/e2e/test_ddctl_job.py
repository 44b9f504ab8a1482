"""ddctl and running jobs on simulated nodes: status, requests, events and keys."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys

import pytest

from support import BUILD, LIMIT, PYTHON, Job, answered, clean_env, free_port, program, some_line, until

DDCTL = os.path.join(BUILD, "ddctl")
NOBODY = 65534
RANK_IS_READY = 'echo "ready $TORCHELASTIC_RUN_ID $RANK $TORCHELASTIC_RESTART_COUNT"\n'
WAITS = RANK_IS_READY + 'until [ -e "$1" ]; do sleep 0.05; done\n'


def asked(*args, **more):
    return subprocess.run([DDCTL, *args], env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT, check=False, **more)


def ddctl(*args, code=0, **more):
    """Return ddctl's stdout, or its stderr if it is to fail. ddctl asks all agents on this machine, and those of other tests
    may be stopped or slow: ddctl is then run again."""
    def ended():
        p = asked(*args, **more)
        return p if p.returncode == code or not re.search("answer|accept no", p.stderr) else None

    p = until(ended, say=f"an answer to {args}")
    assert p.returncode == code, p.stdout + p.stderr
    return p.stdout if code == 0 else p.stderr


def on_terminal(*args):
    """Return what ddctl prints on a terminal."""
    def ended():
        outer, inner = pty.openpty()
        with open(inner, "wb") as stdout, open(outer, "rb", buffering=0) as shown:
            p = subprocess.run([DDCTL, *args], env=clean_env(), stdin=subprocess.DEVNULL, stdout=stdout, timeout=LIMIT, check=False)
            return shown.read(65536).decode() if p.returncode == 0 else None

    return until(ended)


def sockets_of(pids):
    """Return the lines of /proc/net/unix for these agents' listeners; a connection may outlast its client for a moment."""
    with open("/proc/net/unix", encoding="utf-8") as f:
        return [line for line in f if line.split()[3] == "00010000" and any(f"@ddrun-ctl/{pid}/" in line for pid in pids)]


class Running(Job):
    """A job of simulated nodes whose workers run a shell script; $1 is a file that .release() creates."""

    def __init__(self, tmp_path, *options, script=WAITS, workers=1, command=None, before=()):
        self.go = tmp_path / "go"
        self.seen = ""
        super().__init__(*options, *(command or ("sh", "-c", script, "sh", str(self.go))), before=before)
        self.ready(workers)
        self.name = re.search(r"^ready (\S+)", self.seen, re.M).group(1)

    def ready(self, n, restart=0):
        """Wait until n workers have printed 'ready' after that many restarts."""
        while len(re.findall(rf"ready \S+ \d+ {restart}$", self.seen, re.M)) < n:
            self.seen += self.line("\n")

    def ctl(self, *args, **more):
        return ddctl(args[0], f"--job={self.name}", *args[1:], **more)

    def status(self):
        return json.loads(self.ctl("status", "--format=json"))

    def release(self):
        self.go.touch()

    def finish(self, code=0):
        self.release()
        assert self.wait() == code, self.err
        self.assert_nothing_left()


def test_status_names_each_node_and_rank_of_a_running_job_once(tmp_path):
    with Running(tmp_path, "--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=2", workers=4) as job:
        until(lambda: (s := job.status())["missing"] == "" and all(w["state"] == "running" for w in s["workers"]))
        s = job.status()
        assert s["version"] == 1 and "v" not in s, "as in the report and in the doctor's findings"
        assert (s["state"], s["round"], s["restarts"], s["missing"]) == ("running", 0, 0, "")
        assert [w["rank"] for w in s["workers"]] == [0, 1, 2, 3]
        assert [n["state"] for n in s["nodes"]] == ["running", "running", "spare"]  # the node that joins last
        first, second, spare = (n["name"] for n in s["nodes"])
        assert {first, second, spare} == {"sim1", "sim2", "sim3"}
        assert [(w["node"], w["local_rank"]) for w in s["workers"]] == [(first, 0), (first, 1), (second, 0), (second, 1)]
        assert some_line(job.ctl("status"), "running", "round 0", "4 workers", "2 nodes", "--max-restarts=0")
        job.finish()


def test_status_says_who_is_missing_while_the_nodes_gather():
    name = f"gather{free_port()}"
    args = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", f"--rdzv-id={name}"]
    with Job(*args, "--insecure", "true") as job:
        until(lambda: subprocess.run([DDCTL, "status", f"--job={name}"], capture_output=True, check=False).returncode == 0)
        s = json.loads(ddctl("status", f"--job={name}", "--json"))
        assert (s["state"], s["wanted"], len(s["nodes"]), s["workers"]) == ("gathering", 2, 1, [])
        assert s["missing"] == "1 node" and s["nodes"][0]["state"] == "waiting"
        job.p.send_signal(signal.SIGINT)
        assert job.wait() == 130
        job.assert_nothing_left()


FAILS_ONCE = RANK_IS_READY + """
[ "$RANK-$TORCHELASTIC_RESTART_COUNT" = 1-0 ] && exit 7
until [ -e "$1" ]; do sleep 0.05; done
"""


def test_status_after_a_restart_shows_the_new_round(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--max-restarts=2", "--nproc-per-node=1", script=FAILS_ONCE) as job:
        job.ready(2, restart=1)
        s = job.status()
        assert (s["round"], s["restarts"], s["max_restarts"]) == (1, 1, 2)
        assert [w["rank"] for w in s["workers"]] == [0, 1] and s["failed"] == []
        job.finish()


FAILS_AND_STAYS = """
trap 'until [ -e "$1" ]; do sleep 0.05; done; exit 0' TERM
echo "ready $TORCHELASTIC_RUN_ID $RANK $TORCHELASTIC_RESTART_COUNT"
[ "$RANK" = 0 ] && : >"$1.stays"
until [ -e "$1.stays" ]; do sleep 0.05; done
[ "$RANK" = 1 ] && exit 7
while :; do sleep 0.05; done
"""


def test_status_names_the_rank_that_has_failed(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", "--shutdown-timeout=100s", script=FAILS_AND_STAYS) as job:
        until(lambda: job.status()["state"] == "stopping")
        assert [(f["rank"], f["code"]) for f in job.status()["failed"]] == [(1, 7)]
        assert some_line(job.ctl("status"), "rank 1", "sim2", "failed", "code 7")
        job.finish(7)


def nodefile(tmp_path):
    path = tmp_path / "nodes"
    path.write_text(socket.gethostname() + "\n")
    return str(path)


@pytest.mark.parametrize("common, own, other, name", [
    ({"LSB_HOSTS": "HOST"}, {"LSB_JOBID": "9"}, {"LSB_JOBID": "10"}, "lsf.9"),
    ({"LSB_HOSTS": "HOST", "LSB_JOBID": "9"}, {"LSB_JOBINDEX": "1"}, {"LSB_JOBINDEX": "2"}, "lsf.9.1"),
    ({"SGE_ROOT": "/sge", "PE_HOSTFILE": "FILE", "SGE_TASK_ID": "undefined"}, {"JOB_ID": "5"}, {"JOB_ID": "55"}, "sge.5"),
    ({"OAR_NODEFILE": "FILE"}, {"OAR_JOB_ID": "5"}, {"OAR_JOB_ID": "6"}, "oar.5"),
    ({"COBALT_NODEFILE": "FILE"}, {"COBALT_JOBID": "5"}, {"COBALT_JOBID": "6"}, "cobalt.5"),
    ({"PBS_NODEFILE": "FILE", "PBS_TASKNUM": "1"}, {"PBS_JOBID": "7[1].srv"}, {"PBS_JOBID": "7[2].srv"}, "pbs.7[1].srv"),
])
def test_a_process_of_a_job_asks_its_own(tmp_path, common, own, other, name):
    """The variables of each scheduler identify the job, while a second job runs on the node."""
    common = {k: {"HOST": socket.gethostname(), "FILE": nodefile(tmp_path)}.get(v, v) for k, v in common.items()}
    script = ["sh", "-c", WAITS, "sh", str(tmp_path / "go")]
    with Job("--nproc-per-node=1", *script, env=clean_env(**common, **own)) as a, \
            Job("--nproc-per-node=1", *script, env=clean_env(**common, **other)) as b:
        a.line("ready")
        b.line("ready")
        until(lambda: "tip: choose one with --job=ID" in asked("status").stderr, say="two jobs, once both agents answer in time")
        p = answered([DDCTL, "status", "--format=json"], env=clean_env(**common, **own))
        assert json.loads(p.stdout)["job"] == name
        (tmp_path / "go").touch()
        assert (a.wait(), b.wait()) == (0, 0), a.err + b.err


def test_no_job_is_chosen_while_another_ddrun_does_not_answer(tmp_path):
    """It may belong to another job, which ddctl would otherwise signal or drain in place of that one."""
    (tmp_path / "other").mkdir()
    with Running(tmp_path, "--nproc-per-node=1", "--heartbeat=100s") as job, Running(tmp_path / "other", "--nproc-per-node=1") as other:
        agent, = job.agents()
        os.kill(agent, signal.SIGSTOP)
        refused = until(lambda: p if "another ddrun" in (p := asked("signal", "TERM")).stderr else None)
        assert refused.returncode == 1 and some_line(refused.stderr, "tip: ", f"{other.name}"), refused
        assert other.status()["state"] == "running"
        os.kill(agent, signal.SIGCONT)
        job.finish()
        other.finish()


def test_another_job_and_another_user_are_refused(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job:
        assert "nonsense" in ddctl("status", "--job=nonsense", code=2)
        if os.geteuid() == 0:
            assert "no ddrun job" in ddctl("status", code=1, user=NOBODY)
        job.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_the_store_takes_at_most_half_of_the_memory(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:        2097152 kB\n")
    small = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/meminfo && exec "$@"', str(tmp_path / "meminfo"))
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1", before=small) as job:
        assert job.status()["store_max_bytes"] == 1 << 30
        job.finish()


@contextlib.contextmanager
def name_attacker(number, *name):
    with subprocess.Popen([sys.executable, program("name_attacker.py"), "20002", str(number), *name], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "ready\n"
        yield
        p.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_no_number_of_names_like_an_agents_hides_it(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job, name_attacker(8000), name_attacker(8000):
        assert job.status()["job"].endswith(job.name)
        job.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_callers_of_another_user_keep_nobody_from_the_agent(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job:
        name = sockets_of(job.agents())[0].split("@")[1].strip()
        with contextlib.ExitStack() as flood:
            for _ in range(4):
                flood.enter_context(name_attacker(0, name))
            for _ in range(10):
                assert job.status()["job"].endswith(job.name)
        job.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_socket_says_nothing_to_another_user(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job:
        name = "\0" + sockets_of(job.agents())[0].split("@")[1].strip()
        pid = os.fork()
        if pid == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(LIMIT)
                s.connect(name)
                os._exit(0 if s.recv(1) == b"" else 1)
        assert os.waitpid(pid, 0)[1] == 0
        with socket.socket(socket.AF_UNIX) as s:  # this user receives the greeting
            s.settimeout(LIMIT)
            s.connect(name)
            assert s.recv(1) != b""
        job.finish()


def test_callers_who_write_rubbish_or_say_nothing_hold_nobody_up(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job:
        name = "\0" + sockets_of(job.agents())[0].split("@")[1].strip()
        silent = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        for s in silent:
            s.connect(name)
        for rubbish in (b"\xff" * 64, b"\0\0\0\2\0\1\0\1{}", b"GET / HTTP/1.0\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(name)
                s.sendall(rubbish)
        assert job.status()["state"] == "running"
        for s in silent:
            s.close()
        job.finish()


def test_a_ddrun_that_is_stopped_is_said_not_to_answer(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1", "--heartbeat=100s") as job:
        agent, = job.agents()
        os.kill(agent, signal.SIGSTOP)
        assert some_line(job.ctl("status", code=1), "error: ", "answer", "3 s")
        os.kill(agent, signal.SIGCONT)
        assert job.status()["state"] == "running"
        job.finish()


def test_a_stopped_ddrun_whose_queue_is_full_is_reported(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1", "--heartbeat=100s") as job, contextlib.ExitStack() as callers:
        agent, = job.agents()
        name = "\0" + sockets_of([agent])[0].split("@")[1].strip()
        os.kill(agent, signal.SIGSTOP)
        with contextlib.suppress(BlockingIOError):
            while True:
                s = callers.enter_context(socket.socket(socket.AF_UNIX))
                s.setblocking(False)
                s.connect(name)
        assert some_line(job.ctl("status", code=1), "error: ", "like ddrun's accept", "no connection")
        os.kill(agent, signal.SIGCONT)
        job.finish()


def test_nothing_is_left_to_call_after_the_agents_are_killed(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", workers=2) as job:
        agents = job.agents()
        assert len(sockets_of(agents)) == 2
        for pid in agents:
            with contextlib.suppress(ProcessLookupError):  # it has ended with the others
                os.kill(pid, signal.SIGKILL)
        job.wait()
        until(lambda: sockets_of(agents) == [])
        job.assert_nothing_left()


# ---- requests ------------------------------------------------------------------------------------------------------------------

CATCHES = """
trap 'echo "caught $RANK"' USR1
""" + WAITS


def caught(job):
    return sorted(re.findall(r"^caught (\d)$", job.seen, re.M))


def test_a_signal_reaches_each_worker_once(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", script=CATCHES, workers=4) as job:
        until(lambda: job.status()["workers"][0]["state"] == "running")
        job.ctl("signal", "SIGUSR1")
        while len(caught(job)) < 4:
            job.seen += job.line("\n")
        job.finish()
        job.seen += job.out
        assert caught(job) == ["0", "1", "2", "3"]


def test_each_signal_of_ddctl_is_sent(tmp_path):
    """Only a scheduler copies signals. The second request comes within 250 ms of the first."""
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", script=CATCHES, workers=2) as job:
        until(lambda: job.status()["workers"][0]["state"] == "running")
        for n in (1, 2, 3):
            job.ctl("signal", "SIGUSR1")
            while len(caught(job)) < 2 * n:
                job.seen += job.line("\n")
        job.finish()


def test_a_signal_that_no_worker_catches_is_said_to_have_no_effect(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", script=CATCHES, workers=4) as job:
        until(lambda: job.status()["workers"][0]["state"] == "running")

        def sent(name):
            p = asked("signal", f"--job={job.name}", name)
            assert p.returncode == 0
            return p.stderr

        assert "SIGUSR2 has had no effect: no worker catches it" in sent("USR2")
        assert sent("USR1") == ""
        job.finish()


def test_a_signal_that_ends_jobs_ends_this_one(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", workers=2) as job:
        assert "unsupported signal 'KILL'" in job.ctl("signal", "KILL", code=2)
        assert "one signal" in job.ctl("signal", code=2)
        ddctl("signal", "INT", f"--job={job.name}")
        assert job.wait() == 130
        assert some_line(job.err, "SIGINT", "ddctl on sim")
        job.assert_nothing_left()


def test_a_drained_node_gives_its_place_to_a_spare_at_once(tmp_path):
    with Running(tmp_path, "--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=1", workers=2) as job:
        until(lambda: len(job.status()["nodes"]) == 3)
        first, node, spare = (n["name"] for n in job.status()["nodes"])
        assert some_line(job.ctl("drain", node), node, "round")
        until(lambda: (job.status()["round"], job.status()["state"]) == (1, "running"))
        s = job.status()
        assert (s["restarts"], [w["node"] for w in s["workers"]]) == (0, [first, spare])
        assert [(n["name"], n["state"]) for n in s["nodes"][2:]] == [(node, "left-out")]
        assert some_line(job.ctl("drain", node), node, "already")
        assert "cannot drain sim1: it runs the job's daemon" in job.ctl("drain", "sim1", code=2)
        assert f"cannot drain {spare}: too few nodes would remain" in job.ctl("drain", spare, code=2)
        assert "unknown node 'nowhere' in this job\n  tip: 'ddctl status'" in job.ctl("drain", "nowhere", code=2)
        job.finish()


# ---- events and keys ------------------------------------------------------------------------------------------


def test_events_tell_what_happened_in_its_order_until_the_end(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--max-restarts=1", "--nproc-per-node=1", script=FAILS_ONCE) as job:
        job.ready(2, restart=1)
        follower = subprocess.Popen([DDCTL, "events", f"--job={job.name}", "--follow", "--format=json"], text=True,
                                    stdout=subprocess.PIPE)
        first = json.loads(follower.stdout.readline())
        assert first["event"] == "join" and first["time"].endswith("Z")
        until(lambda: some_line(job.ctl("events"), "round 1: ", "workers"))
        assert some_line(job.ctl("events"), "Z  round 0: rank 1", "failed", "code 7")
        job.finish()
        told = [first] + [json.loads(line) for line in follower.stdout.read().splitlines()]
        kinds = [e["event"] for e in told if e["event"] not in ("started", "leave")]  # of a round that failed early
        assert kinds == ["join", "join", "round", "exit", "charge", "round", "finish"]
        follower.stdout.close()
        assert follower.wait(timeout=LIMIT) == 0 and told[-1]["code"] == 0


PUTS = """
import os, sys, time
from torch.distributed import TCPStore
s = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 1, False)
s.set("colour", b"red\\x00")
s.set("shape", "round")
print("ready", os.environ["TORCHELASTIC_RUN_ID"], 0, 0, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
s.set("colour", "blue")
while not os.path.exists(sys.argv[1] + "2"):
    time.sleep(0.05)
"""


class Putting(Running):
    """A job of one worker, which sets keys with PyTorch's client."""

    def __init__(self, tmp_path):
        super().__init__(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1", "--no-python",
                         command=(PYTHON, "-c", PUTS, str(tmp_path / "go")))


def test_kv_shows_what_pytorch_has_put(tmp_path):
    with Putting(tmp_path) as job:
        listed = dict(reversed(line.split()) for line in job.ctl("kv", "list", "/").splitlines())
        assert (listed["/colour"], listed["/shape"]) == ("4", "5")
        assert job.ctl("kv", "list", "/sh").split() == ["5", "/shape"]
        assert on_terminal("kv", f"--job={job.name}", "list", "/sh").split() == ["BYTES", "KEY", "5", "/shape"], "only there a header"
        assert {"key": "/shape", "bytes": 5} in json.loads(job.ctl("kv", "--format=json", "list"))["keys"]
        assert job.ctl("kv", "get", "/colour") == "red\0"
        assert "'/taste'" in (unknown := job.ctl("kv", "get", "/taste", code=1)) and "ddctl kv list" in unknown
        assert "tip: did you mean '/colour'?" in job.ctl("kv", "get", "colour", code=1), "programs do not write the prefix"
        assert "get KEY" in job.ctl("kv", "put", code=2)
        watch = subprocess.Popen([DDCTL, "kv", f"--job={job.name}", "watch", "/colour"], stdout=subprocess.PIPE, text=True)
        assert watch.stdout.readline() == "red\0\n"
        job.release()
        assert watch.stdout.readline() == "blue\n"
        (tmp_path / "go2").touch()
        job.finish()
        assert watch.wait(timeout=LIMIT) == 0
        watch.stdout.close()


def test_jobs_lists_each_job_once_with_its_size(tmp_path):
    """Jobs of other tests may run here, too."""
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", workers=4) as job:
        name = job.status()["job"]
        answer = json.loads(ddctl("jobs", "--format=json"))
        mine, = (j for j in answer["jobs"] if j["job"] == name)
        assert answer["version"] == 1 and mine.pop("seconds") >= 0
        assert mine == {"job": name, "state": "running", "nodes": 2, "wanted": 2, "workers": 4, "round": 0, "restarts": 0,
                        "max_restarts": 1, "missing": ""}
        head, *lines = ddctl("jobs").splitlines()
        assert head.split() == ["JOB", "STATE", "NODES", "WORKERS", "RESTARTS", "ELAPSED"]
        row, = (line.split() for line in lines if line.split()[0] == name)
        assert row[1:5] == ["running", "2", "4", "0/1"]
        job.finish()
