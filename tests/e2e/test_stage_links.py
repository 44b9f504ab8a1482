"""--stage: links between the nodes are cut while the copy passes through them, and it arrives all the same."""

import contextlib
import os
import signal
import socket
import threading

import pytest

from support import LIMIT
from test_attack_stage import Node
from test_attack_stage import pytestmark  # noqa: F401

SIZE, PART = 1 << 20, 2 << 20


class Wire:
    """Forwards connections to a port. The first `cuts` of them are cut after PART bytes towards the caller."""

    def __init__(self, port, cuts):
        self.port, self.cuts = port, cuts
        self.cut = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.here = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.port))
                limit, self.cuts = PART if self.cuts > 0 else 1 << 40, self.cuts - 1
                threading.Thread(target=self._pass, args=(near, far, 1 << 40), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, limit), daemon=True).start()

    def _pass(self, a, b, left):
        with contextlib.suppress(OSError):
            while left > 0:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
                left -= len(data)
            else:
                self.cut.set()
            for s in (a, b):
                s.shutdown(socket.SHUT_RDWR)


@pytest.fixture(name="source")
def make_source(tmp_path):
    top = tmp_path / "source"
    top.mkdir()
    for i in range(8):
        (top / f"file{i}").write_bytes(os.urandom(SIZE))
    return str(top)


def same(node, source):
    for name in os.listdir(source):
        with open(f"{source}/{name}", "rb") as a, open(f"{node.copy}/0/{name}", "rb") as b:
            assert a.read() == b.read(), name


def test_a_copy_completes_after_three_lost_connections(source):
    with Node(parents=0, children=1, source=source) as first, Wire(first.port, 3) as wire, \
            Node(places=[wire.here], source=source) as node:
        kind, texts = node.hear()
        assert kind == "D", (kind, texts)
        assert wire.cut.is_set() and wire.cuts < 1
        same(node, source)
        assert first.hear()[0] == "D"
        for p in (first.p, node.p):
            assert p.wait(LIMIT) == 0


def test_a_copy_arrives_past_a_node_that_is_killed(source):
    with Node(parents=0, children=1, source=source) as first, Node(places=[first.port], children=1, source=source) as middle, \
            Wire(middle.port, 1) as wire, Node(places=[wire.here, first.port], source=source) as node:
        assert wire.cut.wait(LIMIT)
        wire.close()
        os.kill(middle.p.pid, signal.SIGKILL)
        kind, texts = node.hear()
        assert kind == "D", (kind, texts)
        same(node, source)
