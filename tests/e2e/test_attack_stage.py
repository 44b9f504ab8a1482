"""A node of the job that sends what a ddrun-stage never would: the copy is refused, and nothing is written outside it."""

import hashlib
import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import zlib

import pytest

from stranger import frame
from support import BUILD, LIMIT, built_with

HELPER = os.path.join(BUILD, "ddrun-stage")
pytestmark = [pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(not os.access(HELPER, os.X_OK), reason=f"{HELPER} is not built")]
DIR, FILE, PIECE, SYMLINK, HARDLINK, META = range(1, 7)
DIRECTORIES, FILES, LINKS, TIMES = range(4)


def entry(kind, path, data=b"", target=b"", mode=0o644, offset=0):
    return struct.pack("<BIqIQIII", kind, mode, 0, 0, offset, len(path), len(target), len(data)) + path + target + data


def zstd(raw):
    """One frame with one stored block."""
    assert len(raw) < 128 << 10
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(raw)) + struct.pack("<I", 1 | len(raw) << 3)[:3] + raw


def stage(body):
    return frame(8, body)


def head(size=1000, entries=10):
    return stage(struct.pack("<BQQ", 1, size, entries))


def chunk(seq, phase, raw, said=None, packed=None):
    return stage(struct.pack("<BIBI", 2, seq, phase, len(raw) if said is None else said) + (packed or zstd(raw)))


def end(*raws, digest=None):
    total = hashlib.sha256(b"".join(hashlib.sha256(r).digest() for r in raws)).digest()
    return stage(struct.pack("<BI", 3, len(raws)) + (digest or total))


class Node:
    """A ddrun-stage whose agent and parent are this test."""

    def __init__(self):
        self.top = os.path.realpath(tempfile.mkdtemp(prefix="e2e"))
        self.copy = os.path.join(self.top, "copy")
        self.source = os.path.join(self.top, "source")
        os.mkdir(self.copy, 0o700)
        os.mkdir(self.source)
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.settimeout(LIMIT)
        self.p = subprocess.Popen(["bash", "-c", f'exec "$0" serve 3<&{theirs.fileno()}', HELPER], pass_fds=[theirs.fileno()])
        theirs.close()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(LIMIT)
        self.say("S", "job", "me", "127.0.0.1", "", "1", "0", self.copy, "", self.source)
        assert self.hear()[0] == "P"
        self.say("R", "k" * 64, "0", "127.0.0.1", str(self.listener.getsockname()[1]), "parent")
        self.link = self.listener.accept()[0]
        self.link.settimeout(LIMIT)
        self.exactly(struct.unpack(">H", self.exactly(6)[4:])[0])
        self.link.sendall(b"\xdddr\x01\x00\x03\x00\x00\x00")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for s in (self.agent, self.listener, self.link):
            s.close()
        self.p.wait(LIMIT)
        shutil.rmtree(self.top)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.link.recv(n - len(data))
            assert piece, "the link was closed"
            data += piece
        return data

    def say(self, kind, *texts):
        self.agent.send(kind.encode() + b"".join(t.encode() + b"\0" for t in texts))

    def hear(self):
        data = self.agent.recv(200000).decode()
        return data[:1], data[1:].split("\0")[:-1]

    def send(self, *frames):
        for f in frames:
            self.link.sendall(f)


TREE = entry(DIR, b"0", mode=0o755)
GOOD = entry(FILE, b"0/a", b"hello")


def test_a_copy_with_the_right_digest_is_complete():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD), end(TREE, GOOD))
        kind, texts = node.hear()
        assert kind == "D" and texts[1:] == [node.source, f"{node.copy}/0"], (kind, texts)
        with open(f"{node.copy}/0/a", encoding="ascii") as f:
            assert f.read() == "hello"


@pytest.mark.parametrize("frames, says", [
    ([head(), chunk(0, DIRECTORIES, TREE), end(TREE, digest=b"x" * 32)], "differs"),
    ([head(), chunk(0, DIRECTORIES, TREE), end(TREE, GOOD)], "malformed"),
    ([head(), chunk(0, FILES, entry(FILE, b"0/../../outside", b"x"))], "malformed"),
    ([head(), chunk(0, FILES, entry(FILE, b"/outside", b"x"))], "malformed"),
    ([head(), chunk(0, FILES, entry(FILE, b"0/a", b"x", mode=0o4755))], "malformed"),
    ([head(), chunk(0, DIRECTORIES, TREE), chunk(1, LINKS, entry(HARDLINK, b"0/h", target=b"../source/secret"))], "malformed"),
    ([head(), chunk(0, DIRECTORIES, GOOD)], "malformed"),
    ([head(), chunk(0, FILES, b"", said=5, packed=b"not zstd")], "malformed"),
    ([head(), chunk(0, FILES, GOOD, said=len(GOOD) + 1)], "malformed"),
    ([head(), chunk(0, FILES, GOOD, said=len(GOOD) - 1)], "malformed"),
    ([head(), chunk(0, FILES, GOOD, said=0)], "malformed"),
    ([head(), chunk(0, FILES, GOOD, said=1 << 30)], "malformed"),
    ([head(), chunk(99999, FILES, GOOD)], "malformed"),
    ([chunk(0, FILES, GOOD)], "malformed"),
    ([head(), head()], "malformed"),
    ([head(size=1 << 60)], "not enough space"),
    ([stage(b"")], "malformed"),
    ([stage(b"\x09")], "malformed"),
], ids=lambda value: value if isinstance(value, str) else format(zlib.crc32(b"".join(value)), "x"))
def test_malformed_data_of_a_parent_is_refused(frames, says):
    with Node() as node:
        node.send(*frames)
        kind, texts = node.hear()
        assert kind == "F" and says in texts[0] and "me" in texts[0], (kind, texts)
        assert not os.path.exists(os.path.join(node.top, "outside")) and not os.listdir(node.source)


def test_nothing_is_written_through_a_link_that_the_parent_has_sent():
    link = entry(SYMLINK, b"0/link", target=b"../../source")
    through = entry(FILE, b"0/link/outside", b"x")
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, LINKS, link), chunk(2, FILES, through))
        kind, texts = node.hear()
        assert kind == "F" and "cannot write" in texts[0], (kind, texts)
        assert not os.listdir(node.source)


def test_a_parent_that_is_lost_ends_the_copy():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE))
        node.link.close()
        kind, texts = node.hear()
        assert kind == "F" and "lost the connection to parent" in texts[0], (kind, texts)


def test_the_helper_ends_with_its_agent():
    with Node() as node:
        node.agent.close()
        assert node.p.wait(LIMIT) == 0
        assert select.select([node.link], [], [], LIMIT)[0]
