"""A node that is not ddrun: it speaks the link protocol (docs/protocol/link-1.md) unencrypted, as --insecure allows, and sends
what an agent never would."""

import contextlib
import json
import socket
import struct
import threading
import time

CONTROL, PING, EXCHANGE = 1, 4, 5


def frame(kind, data=b""):
    return struct.pack(">IHH", len(data), kind, 1) + data


def message(kind, **fields):
    return frame(CONTROL, json.dumps({"type": kind, "v": 1, **fields}).encode())


def until_listening(port, limit=300.0):
    end = time.monotonic() + limit
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < end, f"nobody listens on port {port}"
            time.sleep(0.01)


class Stranger:
    """A node that joins the job at `port` as node `index`. join: a frame to send in place of JOIN."""

    def __init__(self, port, index, nnodes, min_nodes=None, join=None):
        self.sock = until_listening(port)
        self.lock = threading.Lock()
        body = f"explicit.{port}".encode() + b"\0" + b"stranger\0"
        self.sock.sendall(b"\xdddr\x01" + struct.pack(">H", len(body)) + body)
        reply = self._exactly(6)
        assert reply[:4] == b"\xdddr\x01", reply
        assert self._exactly(struct.unpack(">H", reply[4:])[0]) == b"\0\0\0"  # OK, no key, no credential
        if join is not None:
            self.send(join)
            return
        self.say("join", index=index, nnodes=nnodes, min_nodes=min_nodes or nnodes, epoch=0, elsewhere=0, ended_well=0, slots=1,
                 pid=1, name="stranger", addr="127.0.0.1", addrs=["127.0.0.1"], members="", committed="", spent="", charges="", sent_ns=0,
                 unfit="", check="", ports="", text="")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def _exactly(self, n):
        data = bytearray()
        while len(data) < n:
            piece = self.sock.recv(n - len(data))
            if not piece:
                raise EOFError("the other side has closed the link")
            data += piece
        return bytes(data)

    def send(self, *frames):
        with self.lock:
            self.sock.sendall(b"".join(frames))

    def say(self, kind, **fields):
        self.send(message(kind, **fields))

    def next(self):
        """Return type and data of the next frame other than PING; answer each PING."""
        while True:
            length, kind, _ = struct.unpack(">IHH", self._exactly(8))
            data = self._exactly(length)
            if kind != PING:
                return kind, data
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # frames that arrived before the end are still unread
                self.send(frame(PING))

    def hear(self, wanted):
        """Read until a control message of that type; return the message."""
        while True:
            kind, data = self.next()
            if kind == CONTROL and json.loads(data)["type"] == wanted:
                return json.loads(data)
