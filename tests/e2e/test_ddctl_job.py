"""ddctl and a running job: how it stands, on simulated nodes."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest

from support import BUILD, LIMIT, Job, clean_env, free_port, until

DDCTL = os.path.join(BUILD, "ddctl")
NOBODY = 65534
RANK_IS_READY = 'echo "ready $TORCHELASTIC_RUN_ID $RANK $TORCHELASTIC_RESTART_COUNT"\n'
WAITS = RANK_IS_READY + 'until [ -e "$1" ]; do sleep 0.05; done\n'


def ddctl(*args, code=0, **more):
    """What it wrote to stdout, or to stderr where it is to fail."""
    p = subprocess.run([DDCTL, *args], env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=LIMIT, check=False, **more)
    assert p.returncode == code, p.stdout + p.stderr
    return p.stdout if code == 0 else p.stderr


def sockets_of(pids):
    """The names in /proc/net/unix that belong to these agents."""
    with open("/proc/net/unix", encoding="utf-8") as f:
        return [line for line in f if any(f"@ddrun-ctl/{pid}/" in line for pid in pids)]


class Running(Job):
    """A job of simulated nodes whose workers run a script of sh: $1 is a file that .release() makes."""

    def __init__(self, tmp_path, *options, script=WAITS, workers=1):
        self.go = tmp_path / "go"
        self.seen = ""
        super().__init__(*options, "sh", "-c", script, "sh", str(self.go))
        self.ready(workers)
        self.name = re.search(r"^ready (\S+)", self.seen, re.M).group(1)

    def ready(self, n, restart=0):
        """n workers have said so after that many restarts."""
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
        until(lambda: all(w["state"] == "running" for w in job.status()["workers"]))
        s = job.status()
        assert (s["state"], s["round"], s["restarts"], s["missing"]) == ("running", 0, 0, "")
        assert [w["rank"] for w in s["workers"]] == [0, 1, 2, 3]
        assert [n["state"] for n in s["nodes"]] == ["running", "running", "spare"]  # whoever comes last
        first, second, spare = (n["name"] for n in s["nodes"])
        assert {first, second, spare} == {"sim1", "sim2", "sim3"}
        assert [(w["node"], w["local_rank"]) for w in s["workers"]] == [(first, 0), (first, 1), (second, 0), (second, 1)]
        assert re.search(r"is running: round 0, 4 workers on 2 nodes, 0 of 0 restarts used\n", job.ctl("status"))
        job.finish()


def test_status_says_who_is_missing_while_the_nodes_gather():
    name = f"gather{free_port()}"
    args = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", f"--rdzv-id={name}"]
    with Job(*args, "--insecure", "true") as job:
        until(lambda: subprocess.run([DDCTL, "status", f"--job={name}"], capture_output=True, check=False).returncode == 0)
        s = json.loads(ddctl("status", f"--job={name}", "--format=json"))
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
[ "$RANK" = 1 ] && exit 7
while :; do sleep 0.05; done
"""


def test_status_names_the_rank_that_has_failed(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", "--shutdown-timeout=100s", script=FAILS_AND_STAYS) as job:
        until(lambda: job.status()["state"] == "stopping")
        assert [(f["rank"], f["code"]) for f in job.status()["failed"]] == [(1, 7)]
        assert "rank 1 (sim2) failed: code 7" in job.ctl("status")
        job.finish(7)


def test_another_job_and_another_user_are_refused(tmp_path):
    with Running(tmp_path, "--simulate-nodes=1", "--nproc-per-node=1") as job:
        assert "--job=nonsense: no such job" in ddctl("status", "--job=nonsense", code=2)
        if os.geteuid() == 0:
            assert "no ddrun of this user" in ddctl("status", code=1, user=NOBODY)
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
        with socket.socket(socket.AF_UNIX) as s:  # and this user is greeted
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


def test_nothing_is_left_to_call_after_the_agents_are_killed(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", workers=2) as job:
        agents = job.agents()
        assert len(sockets_of(agents)) == 2
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        job.wait()
        until(lambda: sockets_of(agents) == [])
        job.assert_nothing_left()
