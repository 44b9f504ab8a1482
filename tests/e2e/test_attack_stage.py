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
from test_stage import mounts

HELPER = os.path.join(BUILD, "ddrun-stage")
pytestmark = [pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(not os.access(HELPER, os.X_OK), reason=f"{HELPER} is not built")]
DIR, FILE, PIECE, SYMLINK, HARDLINK, META = range(1, 7)
DIRECTORIES, FILES, LINKS, TIMES = range(4)
TALLY, NOBODY = 5, 0xffffffff


def entry(kind, path, data=b"", target=b"", mode=0o644, offset=0):
    return struct.pack("<BIqIQIII", kind, mode, 0, 0, offset, len(path), len(target), len(data)) + path + target + data


def zstd(raw):
    """One frame with one stored block."""
    assert len(raw) < 128 << 10
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(raw)) + struct.pack("<I", 1 | len(raw) << 3)[:3] + raw


def stage(body):
    return frame(8, body)


def head(size=1000, entries=10, digest=bytes(32)):
    return stage(struct.pack("<BQQ", 1, size, entries) + digest)


def chunk(seq, phase, raw, said=None, packed=None):
    return stage(struct.pack("<BIBI", 2, seq, phase, len(raw) if said is None else said) + (packed or zstd(raw)))


def ack(seq):
    return stage(struct.pack("<BI", 4, seq))


def tally(done, lag=0, slowest=NOBODY):
    return stage(struct.pack("<BIII", TALLY, done, lag, slowest))


def end(*raws, digest=None):
    total = hashlib.sha256(b"".join(hashlib.sha256(r).digest() for r in raws)).digest()
    return stage(struct.pack("<BI", 3, len(raws)) + (digest or total))


ACK_NEED, ACK_HAVE, ACK_END, ACK_HELLO = 0x7ffffffd, 0x7ffffffe, 0x7fffffff, 0x80000000


class Link:
    """A link of ddrun-stage to its parent, which is this test; or (connect) of this test to ddrun-stage, as its child."""

    def __init__(self, sock, connect=False):
        self.sock = sock
        self.sock.settimeout(LIMIT)
        if connect:
            hello = b"job\0child\0"
            self.sock.sendall(b"\xdddr\x01" + struct.pack(">H", len(hello)) + hello)
            head = self.exactly(6)
            assert self.exactly(struct.unpack(">H", head[4:])[0]) == b"\0\0\0"
        else:
            self.exactly(struct.unpack(">H", self.exactly(6)[4:])[0])
            self.sock.sendall(b"\xdddr\x01\x00\x03\x00\x00\x00")

    def exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.sock.recv(n - len(data))
            assert piece, "the link was closed"
            data += piece
        return data

    def send(self, *frames):
        for f in frames:
            self.sock.sendall(f)

    def ack(self):
        """The next ACK."""
        body = self.frame(4)
        return struct.unpack("<I", body)[0]

    def frame(self, kind):
        """The next frame, of this kind; None: whichever comes. TALLY comes at any time, and is left out unless it is asked for."""
        while True:
            length, number, _ = struct.unpack(">IHH", self.exactly(8))
            body = self.exactly(length)
            if number == 8 and (kind == TALLY) == (body[0] == TALLY):
                assert kind in (None, body[0]), body[:20]
                return body[1:] if kind else body

    def close(self):
        self.sock.close()


class Node:
    """A ddrun-stage whose agent and parents are this test."""

    def __init__(self, children=0, parents=1, source=None, keep=None, places=None, below=0):
        self.top = keep or os.path.realpath(tempfile.mkdtemp(prefix="e2e"))
        self.stays = keep is not None
        parents = 0 if places else parents
        self.copy = os.path.join(self.top, "copy")
        self.source = source or os.path.join(self.top, "source")
        os.makedirs(self.copy, 0o700, exist_ok=True)
        os.makedirs(self.source, exist_ok=True)
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.settimeout(LIMIT)
        self.p = subprocess.Popen(["bash", "-c", f'exec "$0" serve 3<&{theirs.fileno()}', HELPER], pass_fds=[theirs.fileno()])
        theirs.close()
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(parents)]
        self.say("S", "job", "me", "127.0.0.1", "", "1", "1" if keep else "0", "1" if keep else "0", "", "0", "0", self.copy, "",
                 self.source)
        kind, texts = self.hear()
        assert kind == "P"
        self.port = int(texts[0])
        ports = places or [s.getsockname()[1] for s in self.listeners]
        self.say("R", "k" * 64, str(children), str(below or children), "5", *[t for i, port in enumerate(ports) for t in ("127.0.0.1", str(port), f"parent{i}")])
        self.link = self.accept() if parents else None

    def accept(self, parent=0):
        """The next link to this parent, with its hello."""
        self.listeners[parent].settimeout(LIMIT)
        link = Link(self.listeners[parent].accept()[0])
        assert link.ack() == ACK_HELLO + 5
        return link

    def child(self, rank):
        """A link of a child of this rank."""
        link = Link(socket.create_connection(("127.0.0.1", self.port), LIMIT), connect=True)
        link.send(ack(ACK_HELLO + rank))
        return link

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for s in (self.agent, *self.listeners, *([self.link] if self.link else [])):
            s.close()
        self.p.wait(LIMIT)
        if not self.stays:
            shutil.rmtree(self.top)

    def say(self, kind, *texts):
        self.agent.send(kind.encode() + b"".join(t.encode() + b"\0" for t in texts))

    def hear(self):
        """Return the next message, but not the progress, which a root sends once a second."""
        data = "B"
        while data[:1] == "B":
            data = self.agent.recv(200000).decode()
        return data[:1], data[1:].split("\0")[:-1]

    def send(self, *frames):
        self.link.send(*frames)


TREE = entry(DIR, b"0", mode=0o755)
GOOD = entry(FILE, b"0/a", b"hello")


def test_a_copy_with_the_right_digest_is_complete():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD), end(TREE, GOOD))
        kind, texts = node.hear()
        assert kind == "D" and texts[2:] == [node.source, f"{node.copy}/0"], (kind, texts)
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


def test_a_chunk_that_comes_twice_counts_once():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), *[chunk(0, DIRECTORIES, TREE)] * 40, chunk(1, FILES, GOOD), end(TREE, GOOD))
        assert node.hear()[0] == "D"


def test_chunks_sent_twice_do_not_stand_for_missing_ones():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), *[chunk(0, DIRECTORIES, TREE)] * 299, end(*[TREE] * 300))
        kind, texts = node.hear()
        assert kind == "F" and "malformed" in texts[0], (kind, texts)


def test_more_chunks_than_the_window_are_refused():
    with Node(children=1) as node:  # the child never comes, so no chunk is released
        node.send(head(), *[chunk(i, FILES, entry(FILE, b"f%d" % i)) for i in range(25)])
        kind, texts = node.hear()
        assert kind == "F" and "malformed" in texts[0], (kind, texts)


@pytest.mark.parametrize("prepare", ["left out", "too deep"])
def test_names_of_files_cannot_control_the_terminal(tmp_path, prepare):
    name = b"x\x1b]0;owned\x07\ny\xc2\x9bz"
    source = os.path.join(os.fsencode(tmp_path), b"s")
    os.mkdir(source)
    if prepare == "left out":
        os.mkfifo(os.path.join(source, name))
    else:
        below = os.open(source, os.O_RDONLY)
        for _ in range(60):  # more directories than a path may have
            os.mkdir(name, dir_fd=below)
            below, before = os.open(name, os.O_RDONLY, dir_fd=below), below
            os.close(before)
        os.close(below)
    with Node(parents=0, source=os.fsdecode(source)) as node:
        kind, texts = node.hear()
        assert kind == ("W" if prepare == "left out" else "F")
        assert "x?]0;owned??y" in texts[0] and not any(c < " " or "\x7f" <= c < "\xa0" for c in texts[0]), texts


def test_a_lost_link_is_made_again_and_the_copy_goes_on():
    big = [entry(FILE, b"0/f%d" % i, os.urandom(1000)) for i in range(3)]
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, big[0]))
        while node.link.ack() != 1:
            pass
        node.link.close()
        node.link = node.accept()
        node.send(head(), chunk(1, FILES, big[0]))
        assert node.link.ack() == 1, "it needs no second copy of what it has"
        node.send(chunk(2, FILES, big[1]), chunk(3, FILES, big[2]), end(TREE, *big))
        assert node.hear()[0] == "D"
        for i in range(3):
            with open(f"{node.copy}/0/f{i}", "rb") as f:
                assert f.read() == big[i][-1000:]


def test_a_node_whose_parent_is_lost_connects_to_the_parent_of_that():
    with Node(parents=3) as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE))
        node.listeners[0].close()
        node.link.close()
        node.link = node.accept(1)
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD), end(TREE, GOOD))
        assert node.hear()[0] == "D"


def test_a_node_switches_from_a_parent_that_lacks_chunks():
    with Node(parents=3) as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE))
        node.listeners[0].close()
        node.link.close()
        node.link = node.accept(1)
        node.listeners[1].close()
        node.send(head(), end(TREE, GOOD))  # chunk 1 is needed by nobody else any more
        node.link = node.accept(2)
        node.send(head(), chunk(1, FILES, GOOD), end(TREE, GOOD))
        assert node.hear()[0] == "D"


def test_another_head_after_a_lost_link_is_refused():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE))
        node.link.close()
        node.link = node.accept()
        node.send(head(size=7))
        kind, texts = node.hear()
        assert kind == "F" and "malformed" in texts[0], (kind, texts)


def test_a_child_that_connects_again_gets_what_it_has_not_acknowledged():
    with Node(children=1) as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD))
        child = node.child(7)
        assert [child.frame(None)[0] for _ in range(3)] == [1, 2, 2]
        child.send(ack(0))
        assert node.link.ack() == 0
        child.close()
        node.send(end(TREE, GOOD))
        child = node.child(7)
        child.frame(1)
        assert child.frame(2)[:4] == struct.pack("<I", 1)
        child.frame(3)
        child.send(ack(1), ack(ACK_END))
        assert node.hear()[0] == "D" and node.p.wait(LIMIT) == 0
        child.close()


def test_a_node_that_has_lost_its_parent_gets_the_copy_beside_the_children():
    with Node(children=1) as node:
        child = node.child(7)
        child2 = node.child(15)
        node.send(head(), chunk(0, DIRECTORIES, TREE), end(TREE))
        for link in (child, child2):
            assert [link.frame(None)[0] for _ in range(3)] == [1, 2, 3]
            link.send(ack(0), ack(ACK_END))
        assert node.hear()[0] == "D" and node.p.wait(LIMIT) == 0
        child.close()
        child2.close()


def test_a_copy_ends_if_no_parent_can_be_reached_again():
    with Node() as node:
        node.send(head(), chunk(0, DIRECTORIES, TREE))
        node.listeners[0].close()
        node.link.close()
        kind, texts = node.hear()
        assert kind == "F" and "lost the connection to parent0" in texts[0], (kind, texts)


def test_a_kept_copy_is_forwarded_for_only_if_a_child_needs_it(tmp_path):
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    top = str(tmp_path)
    frames = [chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD), end(TREE, GOOD)]
    with Node(keep=top) as node:
        node.send(head(digest=b"d" * 32), *frames)
        assert node.link.ack() == ACK_NEED
        kind, texts = node.hear()
        place = f"{top}/ddrun-kept-{os.geteuid()}/" + "64" * 32
        assert kind == "D" and texts[1:] == ["1", node.source, f"{place}/0"], (kind, texts)
    with Node(keep=top) as node:
        node.send(head(digest=b"d" * 32))
        assert node.link.ack() == ACK_HAVE
        kind, texts = node.hear()
        assert kind == "D" and texts[2:] == [node.source, f"{place}/0"] and node.p.wait(LIMIT) == 0
    with Node(keep=top, children=2) as node:
        first, second = node.child(7), node.child(8)
        node.send(head(digest=b"d" * 32))
        for link, answer in ((first, ACK_HAVE), (second, ACK_NEED)):
            assert link.frame(None)[0] == 1
            link.send(ack(answer))
        assert node.link.ack() == ACK_NEED
        node.send(*frames)
        assert [second.frame(None)[0] for _ in range(3)] == [2, 2, 3]
        second.send(ack(0), ack(1), ack(ACK_END))
        assert node.hear()[0] == "D" and node.p.wait(LIMIT) == 0
        assert os.listdir(node.copy) == []
    with Node(keep=top) as node:  # another listing
        node.send(head(digest=b"e" * 32))
        assert node.link.ack() == ACK_NEED


def reported(node, *last):
    """The tallies that the node reports, up to this one."""
    found = []
    while last not in found:
        found.append(struct.unpack("<III", node.link.frame(TALLY)))
    return found


def test_a_node_reports_how_far_those_below_it_are():
    with Node(children=1, below=3) as node:
        child = node.child(7)
        child.send(tally(2, 1, 9))
        assert len(reported(node, 2, 0, NOBODY)) == 1, "nobody lacks what the node has"
        node.send(head(), chunk(0, DIRECTORIES, TREE), chunk(1, FILES, GOOD))
        assert [child.frame(None)[0] for _ in range(3)] == [1, 2, 2]
        child.send(tally(1, 2, 9))
        reported(node, 1, 2, 9)
        child.send(tally(2), ack(1))
        reported(node, 2, 1, 7)  # the child itself lacks chunk 0
        node.send(end(TREE, GOOD))
        assert node.hear()[0] == "D"
        child.send(ack(0), tally(3), ack(ACK_END))
        reported(node, 4, 0, NOBODY)
        assert node.p.wait(LIMIT) == 0
        child.close()


@pytest.mark.parametrize("bad", [tally(4), tally(0xffffffff), tally(2, 25, 9), tally(2, 1, NOBODY), tally(2, 0, 9), tally(2, 1, 1 << 31),
                                 tally(2)[:-1], stage(tally(2)[8:] + b"x")],
                         ids=["nodes", "many", "chunks", "nobody", "somebody", "rank", "short", "long"])
def test_a_false_report_of_a_child_is_left_out(bad):
    with Node(children=1, below=3) as node:
        child = node.child(7)
        child.send(stage(bad[8:]), tally(1))
        assert len(reported(node, 1, 0, NOBODY)) == 1
        child.send(stage(bad[8:]))
        node.send(head(), chunk(0, DIRECTORIES, TREE), end(TREE))
        assert [child.frame(None)[0] for _ in range(3)] == [1, 2, 3]
        child.send(ack(0), ack(ACK_END))
        reported(node, 4, 0, NOBODY)  # the child has acknowledged the end for all below it
        child.close()


def test_nodes_below_count_once_when_they_have_changed_their_parent():
    with Node(children=1, below=3) as node:
        child, other = node.child(7), node.child(15)
        child.send(tally(3))
        other.send(tally(2))
        reported(node, 3, 0, NOBODY)
        child.close()
        reported(node, 2, 0, NOBODY)  # the child is lost, and those below it report anew
        other.close()


def test_a_parent_that_reports_is_refused():
    with Node(children=1) as node:
        node.send(tally(1))
        kind, texts = node.hear()
        assert kind == "F" and "malformed" in texts[0], (kind, texts)


def test_the_helper_ends_with_its_agent():
    with Node() as node:
        node.agent.close()
        assert node.p.wait(LIMIT) == 0
        assert select.select([node.link.sock], [], [], LIMIT)[0]
