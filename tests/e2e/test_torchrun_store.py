"""A standing ddrund as the store of real torchrun agents: restarts, growth, a run id in use again, and stopped peers."""

import os
import signal
import subprocess
import sys
import time

import pytest

import c10d
from conftest import DDRUND, Server
from support import LIMIT, PYTHON, clean_env, program, until, with_torch

STORES = ("direct", "relay")  # of the stopped peers; a relay serves workers of ddrun alone, never an agent of torchrun


@pytest.fixture(scope="module")
def standing():
    """Yield a ddrund that serves agents of torchrun."""
    server = Server([DDRUND, "--insecure", "--listen=127.0.0.1:0"])
    yield server
    server.stop()


class Agents:
    """torchrun agents of one run, each of them a node with a loopback address of its own."""

    def __init__(self, store, folder, run_id, *args, env=()):
        self.dir = str(folder)
        self.run_id = run_id
        self.argv = [PYTHON, "-m", "torch.distributed.run", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{store.port}",
                     f"--rdzv-id={run_id}", "--nproc-per-node=1", "--max-restarts=2", *args]
        self.env = clean_env(ROUND_DIR=self.dir, TMPDIR=self.dir, **dict(env))
        self.running = []

    def start(self, *numbers):
        for i in numbers:
            log = open(os.path.join(self.dir, f"log{i}"), "w", encoding="utf-8")  # noqa: SIM115
            with log:
                self.running.append(subprocess.Popen([*self.argv, f"--local-addr=127.0.0.{i}", program("round.py")], env=self.env,
                                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill()

    def kill(self):
        """Kill the agents and their workers, which torchrun leaves behind."""
        workers = [int(line.split()[2]) for line in self.lines()]
        for p in self.running:
            p.kill()
            p.wait()
        for path in os.listdir("/proc"):
            try:
                with open(f"/proc/{path}/environ", "rb") as f:
                    mine = path.isdigit() and f"ROUND_DIR={self.dir}\0".encode() in f.read()
                if mine:
                    os.kill(int(path), signal.SIGKILL)
            except (OSError, ValueError):
                pass
        self.running = []
        return workers

    def do(self, what):
        path = os.path.join(self.dir, "do")
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(what)
        os.rename(path + ".new", path)

    def lines(self):
        try:
            with open(os.path.join(self.dir, "seen"), encoding="ascii") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def started(self, *ranks):
        """Wait until the workers that were started are these, in any order."""
        wanted = sorted(ranks)
        until(lambda: sorted(line.split()[0] for line in self.lines()) == wanted, limit=LIMIT, say=f"{wanted} of {self.logs()}")

    def ends(self):
        codes = [p.wait(timeout=LIMIT) for p in self.running]
        self.running = []
        return codes

    def logs(self):
        return [open(os.path.join(self.dir, n), encoding="utf-8").read()[-2000:] for n in os.listdir(self.dir) if n.startswith("log")]


@with_torch
def test_two_agents_restart_and_the_run_id_can_be_used_again_at_once(standing, tmp_path):
    for turn in range(2):
        (tmp_path / str(turn)).mkdir()
        with Agents(standing, tmp_path / str(turn), "again", "--nnodes=1:2") as agents:
            agents.start(2, 3)
            agents.started("0/2", "1/2")
            agents.do("fail 1")
            agents.started("0/2", "1/2", "0/2", "1/2")
            agents.do("go")
            assert agents.ends() == [0, 0], agents.logs()


@with_torch
def test_a_run_grows_when_a_node_comes(standing, tmp_path):
    conf = "--rdzv-conf=last_call_timeout=1"
    with Agents(standing, tmp_path, "grow", "--nnodes=1:2", conf, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}) as agents:
        agents.start(2)
        agents.started("0/1")
        agents.start(3)
        agents.started("0/1", "0/2", "1/2")
        agents.do("go")
        assert agents.ends() == [0, 0], agents.logs()


@with_torch
def test_after_all_agents_were_killed_the_run_id_begins_anew(standing, tmp_path):
    """Otherwise new agents would meet nodes that are dead, and wait for their missed heartbeats."""
    for turn in range(2):
        (tmp_path / str(turn)).mkdir()
        with Agents(standing, tmp_path / str(turn), "killed", "--nnodes=2") as agents:
            agents.start(2, 3)
            agents.started("0/2", "1/2")
            if turn == 0:
                agents.kill()
                continue
            agents.do("go")
            assert agents.ends() == [0, 0], agents.logs()


@with_torch
def test_a_second_run_at_the_same_store_is_not_disturbed(standing, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Agents(standing, tmp_path / "a", "one", "--nnodes=1") as one, Agents(standing, tmp_path / "b", "one.0", "--nnodes=1", "--max-restarts=1") as other:
        one.start(2)
        other.start(3)
        one.started("0/1")
        other.started("0/1")
        one.do("go")
        assert one.ends() == [0], one.logs()
        other.do("fail 0")
        other.started("0/1", "0/1")
        other.do("go")
        assert other.ends() == [0], other.logs()


# Stopped peers. They must not delay other clients: each of these requests would then have no reply.

def others_are_served(port, rounds=200):
    a, b = c10d.Client(port), c10d.Client(port)
    for i in range(rounds):
        assert a.ask(c10d.add(b"/others", 1), 8) == b.ask(c10d.add(b"/others", 0), 8)
        a.s.sendall(c10d.set_(b"/o%d" % (i % 7), b"x" * i))
        assert b.ask(c10d.ping(i), 4) == i.to_bytes(4, "little")
    a.s.close()
    b.s.close()


def test_half_a_request_holds_up_nobody(store):
    stalled = [c10d.Client(store.port) for _ in range(3)]
    stalled[0].s.sendall(c10d.set_(b"/half", b"x" * 5_000_000)[:3_000_000])
    stalled[1].s.sendall(b"\x0b" + (100_000).to_bytes(8, "little") + c10d.text(b"/k"))
    stalled[2].s.sendall(c10d.wait(b"/never"))
    others_are_served(store.port)
    stalled[0].s.sendall(c10d.set_(b"/half", b"x" * 5_000_000)[3_000_000:])
    assert stalled[0].ask(c10d.check(b"/half"), 1) == b"\0"


def test_a_client_that_reads_nothing_holds_up_nobody(store):
    greedy = c10d.Client(store.port)
    greedy.s.sendall(c10d.set_(b"/big", b"y" * 1_000_000))
    greedy.s.settimeout(1)
    with pytest.raises(TimeoutError):  # until the daemon reads no more of it
        for _ in range(1_000_000):
            greedy.s.sendall(c10d.get(b"/big") * 100)
    others_are_served(store.port)
    assert store.rss() < 400_000_000  # ddrund does not queue all the replies that the client requested
    greedy.s.close()


def test_messages_that_nobody_reads_hold_up_nobody():
    """As with a stopped terminal or a pager: the daemon's messages wait, its replies do not."""
    p = subprocess.Popen([DDRUND, "--insecure", "--listen=127.0.0.1:0", "--log-level=debug"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_env())
    try:
        port = int(p.stdout.readline().rsplit(":", 1)[1])
        for _ in range(2500):  # ddrund logs each in a line; together they are more than a pipe holds
            with c10d.Client(port) as c:
                c.s.sendall(b"\xff")
                assert c.rest() == b""
        others_are_served(port)
        p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=LIMIT) == 0
        assert len(p.stderr.read()) > 60_000  # the pipe was full
    finally:
        p.kill()
        p.communicate()


STOPPED = """
import sys
sys.path.insert(0, sys.argv[2])
import c10d
c = c10d.Client(int(sys.argv[1]))
print("on", flush=True)
while True:
    c.s.sendall(c10d.set_(b"/s", b"z" * 300_000) + c10d.get(b"/s"))
    c.read(8 + 300_000)
"""


def test_clients_that_are_stopped_in_the_middle_hold_up_nobody(store):
    here = os.path.dirname(os.path.abspath(__file__))
    clients = [subprocess.Popen([sys.executable, "-c", STOPPED, str(store.port), here], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        for p in clients:
            assert p.stdout.readline() == "on\n"
        time.sleep(0.2)  # into the middle of the requests, wherever that is
        for p in clients:
            p.send_signal(signal.SIGSTOP)
        others_are_served(store.port)
        clients[0].send_signal(signal.SIGCONT)
        others_are_served(store.port, 20)
        assert clients[0].poll() is None
    finally:
        for p in clients:
            p.kill()
            p.wait()
            p.stdout.close()
