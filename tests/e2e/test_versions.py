"""Nodes with different versions of ddrun: a node skips what it may skip, and ends with a message that names the node and both
versions where it may not. No node waits for a reply to a message that was not read."""

import json
import re
import signal
import socket
import struct
import subprocess
import threading

import pytest

from stranger import CONTROL, Stranger, frame
from support import DDRUN, LIMIT, Job, free_port

BYE = 2
VERSION = re.search(r"[\d.]+\d", subprocess.run([DDRUN, "--version"], capture_output=True, text=True, check=True).stdout).group()
NEWER = "99.1.0"


def later(kind, v=1, **fields):
    return frame(CONTROL, json.dumps({"type": kind, "v": v, "ddrun": NEWER, "mood": "good", **fields}).encode())


class Daemon(Stranger):
    """A daemon of a later version, on the first node."""

    def __init__(self):
        self.lock = threading.Lock()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(LIMIT)
        self.port = self.server.getsockname()[1]

    def __exit__(self, *exc):
        self.server.close()

    def take(self):
        """Accept connections until one sends JOIN; return the JOIN."""
        while True:
            self.sock = self.server.accept()[0]
            self.sock.settimeout(LIMIT)
            try:
                head = self._exactly(6)
                self._exactly(struct.unpack(">H", head[4:])[0])
                self.sock.sendall(b"\xdddr\x01\0\3\0\0\0")
                kind, data = self.next()
                assert (kind, json.loads(data)["type"]) == (CONTROL, "join")
                return json.loads(data)
            except EOFError:  # the agent has closed this one: it has another connection
                continue

    def say(self, kind, v=1, **fields):
        self.send(later(kind, v, **fields))

    def plan(self, *without):
        fields = {"round": 0, "node_rank": 1, "restart_count": 0, "max_restarts": 0, "addr": "127.0.0.1", "master_port": self.port,
                  "sizes": "1(x2)", "nodes": "newer,older", "members": "0 0 0 0 n[0-1]", "addrs": ["", ""], "ports": "", "spent": "", "charges": "",
                  "token": "x" * 32}
        self.say("plan", **{name: v for name, v in fields.items() if name not in without})


def node(rank, port, *command):
    return Job("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure", "--nproc-per-node=1",
               f"--node-rank={rank}", *command)


def names_both(text):
    return NEWER in text and f"ddrun {VERSION}" in text


def test_what_a_newer_node_adds_is_skipped():
    port = free_port()
    with node(0, port, "true") as job, Stranger(port, 1, 2) as newer:
        newer.send(later("mood"), frame(99, b"bulk of another time"))
        plan = newer.hear("plan")
        assert plan["ddrun"] == VERSION
        newer.send(later("started", round=plan["round"], workers=["one"]))
        newer.send(later("mood"), later("done", round=plan["round"], sent_ns=0, left=1, stopped=0, killed=0, first_rank=0, first_ns=0, unfit="", ports=""))
        assert newer.hear("finish")["code"] == 0
        newer.send(frame(BYE))
        assert job.wait() == 0, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("what", [later("mood", v=2), later("started", v=2, round=0), later("done"), frame(CONTROL, b"\x82\xa4type")],
                         ids=["needed", "newer", "lacks", "no-json"])
def test_a_newer_node_that_the_daemon_cannot_read_is_lost_with_the_reason(what):
    """The daemon once dropped such a message, and the round waited for it."""
    port = free_port()
    with node(0, port, "sleep", "1000") as job, Stranger(port, 1, 2) as newer:
        newer.hear("plan")
        newer.send(what)
        text = newer.hear("refuse")["text"]
        assert "stranger" in text and (names_both(text) or b"type\":" not in what), text
        assert job.wait() == 1, job.err
        assert text in job.err, job.err
        job.assert_nothing_left()


def test_a_newer_node_that_frames_otherwise_is_lost_with_the_reason():
    port = free_port()
    with node(0, port, "sleep", "1000") as job, Stranger(port, 1, 2) as newer:
        newer.hear("plan")
        newer.send(struct.pack(">IHH", 2, CONTROL, 2) + b"{}")
        assert job.wait() == 1, job.err
        assert "stranger" in job.err and "version" in job.err, job.err
        job.assert_nothing_left()


def test_a_join_that_cannot_be_read_is_refused_with_both_versions():
    port = free_port()
    with node(0, port, "true") as job, Stranger(port, 1, 2, join=later("join", v=2)) as newer:
        text = newer.hear("refuse")["text"]
        assert "stranger" in text and names_both(text), text
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert text in job.err, job.err
        job.assert_nothing_left()


def test_what_a_newer_daemon_adds_is_skipped():
    with Daemon() as newer, node(1, newer.port, "echo", "it runs") as job:
        assert newer.take()["ddrun"] == VERSION
        newer.say("mood")
        newer.sock.sendall(frame(99, b"bulk of another time"))
        newer.plan()
        newer.hear("done")
        newer.say("finish", code=0, lost=0, asked=0, report=0, text="", detail="")
        assert job.wait() == 0, job.err
        assert "it runs" in job.out
        job.assert_nothing_left()


def test_a_plan_that_cannot_be_read_ends_the_node_and_tells_the_daemon_why():
    """The node once dropped such a plan, and both sides waited."""
    with Daemon() as newer, node(1, newer.port, "true") as job:
        newer.take()
        newer.plan("sizes")
        kind, data = newer.next()
        why = data.decode()
        assert kind == BYE and "'sizes'" in why and names_both(why), why
        newer.sock.close()
        assert job.wait() == 2, job.err
        assert why in job.err, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("what", [later("stop", v=2, round=0, signal=15, text=""), later("finish"), later("mood", v=2)],
                         ids=["newer", "lacks", "needed"])
def test_running_workers_are_ended_when_the_daemon_cannot_be_read(what):
    with Daemon() as newer, node(1, newer.port, "sleep", "1000") as job:
        newer.take()
        newer.plan()
        newer.hear("started")
        newer.sock.sendall(what)
        kind, data = newer.next()
        assert kind == BYE and names_both(data.decode()), data
        newer.sock.close()
        assert job.wait() == 2, job.err
        assert data.decode() in job.err, job.err
        job.assert_nothing_left()
