"""A node of the job that sends what a ddrun-stage of --collect never would, and strangers at its port: nothing is written outside DIR."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import pytest

from stranger import frame
from support import BUILD, LIMIT, built_with

HELPER = os.path.join(BUILD, "ddrun-stage")
pytestmark = [pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(not os.access(HELPER, os.X_OK), reason=f"{HELPER} is not built")]
HELLO, OFFER, PIECE, COMMIT, DROP, BYE, ANSWER, TAKEN = range(1, 9)
WANT, HAVE, REFUSED, BUSY = range(4)


def zstd(raw):
    """One frame with one stored block."""
    assert len(raw) < 128 << 10
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(raw)) + struct.pack("<I", 1 | len(raw) << 3)[:3] + raw


def collect(kind, rest=b"", verdict=0, number=1, mode=0o644, mtime=1000, size=0):
    return frame(8, struct.pack("<BBIIqIQ", kind, verdict, number, mode, mtime, 0, size) + rest)


class Receiver:
    """A ddrun-stage that receives files; its agent and the other nodes are this test."""

    def __init__(self, insecure="1"):
        self.top = os.path.realpath(tempfile.mkdtemp(prefix="e2e"))
        self.out = os.path.join(self.top, "out")
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.settimeout(LIMIT)
        self.p = subprocess.Popen(["bash", "-c", f'exec "$0" collect 3<&{theirs.fileno()}', HELPER], pass_fds=[theirs.fileno()])
        theirs.close()
        texts = ["job", "first", "127.0.0.1", "", insecure, "a1" * 32, "", "", "", "60", "first", "/", "", "", "0", "0", "0", self.out]
        self.agent.send(b"C" + b"".join(t.encode() + b"\0" for t in texts))
        kind, said = self.hear()
        assert kind == "P", (kind, said)
        self.port = int(said[0])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.agent.close()
        assert self.p.wait(LIMIT) == 0
        shutil.rmtree(self.top)

    def hear(self):
        while True:
            data = self.agent.recv(200000).decode()
            if data[:1] != "A":
                return data[:1], data[1:].split("\0")[:-1]

    def files(self):
        return sorted(os.path.relpath(os.path.join(d, f), self.top) for d, _, files in os.walk(self.top) for f in files)


class Node:
    """A node of the job, without TLS."""

    def __init__(self, receiver):
        self.s = socket.create_connection(("127.0.0.1", receiver.port))
        self.s.settimeout(LIMIT)
        self.s.sendall(hello())
        self.exactly(9)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.s.close()

    def exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.s.recv(n - len(data))
            if not piece:
                return None
            data += piece
        return data

    def answer(self):
        """The next answer as (verdict, number, text); None: the receiver has closed the link."""
        while True:
            head = self.exactly(8)
            if head is None:
                return None
            body = self.exactly(struct.unpack(">I", head[:4])[0])
            if struct.unpack(">H", head[4:6])[0] == 8 and body[0] == ANSWER:
                return body[1], struct.unpack("<I", body[2:6])[0], body[30:].decode()

    def send(self, *frames):
        for f in frames:
            self.s.sendall(f)


def hello(job=b"job"):
    body = job + b"\0stranger\0"
    return b"\xdddr\x01" + struct.pack(">H", len(body)) + body


def greeted(node, folder=b"node7"):
    node.send(collect(HELLO, folder, number=0))
    assert node.answer() == (WANT, 0, "")


def test_a_valid_transfer_creates_the_file():
    with Receiver() as r, Node(r) as node:
        greeted(node)
        node.send(collect(OFFER, b"run/a", size=5))
        assert node.answer() == (WANT, 1, "")
        node.send(collect(PIECE, zstd(b"hello"), size=5), collect(COMMIT))
        assert node.answer() == (HAVE, 1, "")
        assert r.files() == ["out/node7/run/a"]


@pytest.mark.parametrize("frames", [
    [collect(HELLO, b"../x", number=0)],
    [collect(HELLO, b"a/b", number=0)],
    [collect(HELLO, b"\x1b[2J", number=0)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"../../outside", size=1)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"/tmp/outside", size=1)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"a", mode=0o4755)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"a", verdict=65)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"a", size=1 << 63)],
    [collect(HELLO, b"n", number=0), collect(OFFER, b"a" * 300)],
    [collect(HELLO, b"n", number=0), collect(PIECE, b"", size=1)],
    [collect(HELLO, b"n", number=0), collect(PIECE, b"x", size=1 << 30)],
    [frame(8, b"")],
    [frame(8, b"\x63" * 40)],
], ids=range(13))
def test_a_malformed_frame_ends_the_link(frames):
    with Receiver() as r, Node(r) as node:
        node.send(*frames)
        while node.answer() is not None:
            pass
        assert r.files() == []
        with Node(r) as other:
            greeted(other)


@pytest.mark.parametrize("frames, says", [
    ([collect(OFFER, b"a", size=5), collect(PIECE, zstd(b"hello!"), size=6)], "more data"),
    ([collect(OFFER, b"a", size=5), collect(PIECE, zstd(b"hell"), size=4), collect(COMMIT)], "less data"),
    ([collect(OFFER, b"a", size=5), collect(PIECE, b"not zstd", size=5)], "malformed"),
    ([collect(OFFER, b"a", size=5), collect(PIECE, zstd(b"hello"), size=4)], "malformed"),
    ([collect(OFFER, b"a", size=1 << 60)], "not enough space"),
    ([collect(OFFER, b"a", verdict=1, size=5)], "different --collect"),
])
def test_a_file_that_is_not_as_announced_leaves_nothing(frames, says):
    with Receiver() as r, Node(r) as node:
        greeted(node)
        node.send(*frames)
        answers = [node.answer()]
        if answers[0][0] == WANT:
            answers.append(node.answer())
        assert answers[-1][0] == REFUSED and says in answers[-1][2], answers
        assert r.files() == []


def test_nothing_is_written_before_the_node_may_send():
    with Receiver() as r, Node(r) as node, Node(r) as other:
        node.send(collect(OFFER, b"a", size=0), collect(COMMIT))
        node.send(collect(HELLO, b"n", number=0), collect(BYE, number=9))
        assert node.answer() == (WANT, 0, "")
        assert node.answer() == (HAVE, 9, "")
        assert r.files() == []
        greeted(other)


def test_a_node_that_is_lost_leaves_no_half_file():
    with Receiver() as r:
        with Node(r) as node:
            greeted(node)
            node.send(collect(OFFER, b"a", size=10))
            assert node.answer() == (WANT, 1, "")
            node.send(collect(PIECE, zstd(b"hello"), size=5))
        with Node(r) as other:
            greeted(other, b"other")
            other.send(collect(BYE, number=0))
            assert other.answer() == (HAVE, 0, "")
        assert r.files() == []


def test_the_receiver_ends_with_its_agent_and_leaves_no_half_file():
    with Receiver() as r, Node(r) as node:
        greeted(node)
        node.send(collect(OFFER, b"a", size=10), collect(PIECE, zstd(b"hello"), size=5))
        assert node.answer() == (WANT, 1, "")
        r.agent.close()
        assert r.p.wait(LIMIT) == 0
        assert r.files() == []


STRANGER = """
import os, socket, sys
os.setgid(65530); os.setuid(65530)
held = []
for i in range(300):
    s = socket.socket()
    s.connect(("127.0.0.1", int(sys.argv[1])))
    if i % 3 == 1:
        s.sendall(bytes.fromhex(sys.argv[2]))
    if i % 3 == 2:
        s.sendall(os.urandom(200))
    held.append(s)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to act as another user")
def test_another_user_without_the_key_gets_nothing_and_does_not_keep_others_out(tmp_path):
    """A stranger floods the port; a real ddrun-stage with the key sends its file all the same."""
    (tmp_path / "file").write_text("mine")
    with Receiver(insecure="0") as r:
        flood = subprocess.Popen([sys.executable, "-c", STRANGER, str(r.port), hello().hex()], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        try:
            assert flood.stdout.readline() == b"held\n"
            agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            agent.settimeout(LIMIT)
            p = subprocess.Popen(["bash", "-c", f'exec "$0" collect 3<&{theirs.fileno()}', HELPER], pass_fds=[theirs.fileno()])
            theirs.close()
            texts = ["job", "node7", "127.0.0.1", "", "0", "a1" * 32, "127.0.0.1", str(r.port), "first", "60", "node7", "/", "", "", "0", "0",
                     "0", f"{tmp_path}/file"]
            agent.send(b"C" + b"".join(t.encode() + b"\0" for t in texts))
            said = b"A"
            while said[:1] == b"A":
                said = agent.recv(200000)
            assert said[:1] == b"E" and b"1 file" in said, said
            agent.close()
            p.wait(LIMIT)
        finally:
            flood.stdin.close()
            flood.stdout.close()
            flood.wait(LIMIT)
        assert r.files() == ["out/node7/file"]
