"""Requests of PyTorch's store protocol (docs/protocol/store-c10d.md), and a client on a plain socket."""

import socket
import struct

VALIDATE = bytes.fromhex("00cef7853c")


def text(b):
    return struct.pack("<Q", len(b)) + b


def texts(keys):
    return struct.pack("<Q", len(keys)) + b"".join(text(k) for k in keys)


def set_(k, v):
    return b"\x01" + text(k) + text(v)


def compare_set(k, expected, desired):
    return b"\x02" + text(k) + text(expected) + text(desired)


def get(k):
    return b"\x03" + text(k)


def add(k, n):
    return b"\x04" + text(k) + struct.pack("<q", n)


def check(*keys):
    return b"\x05" + texts(keys)


def wait(*keys):
    return b"\x06" + texts(keys)


def delete(k):
    return b"\x08" + text(k)


def append(k, v):
    return b"\x09" + text(k) + text(v)


def multi_set(pairs):
    return b"\x0b" + struct.pack("<Q", len(pairs)) + b"".join(text(k) + text(v) for k, v in pairs)


def ping(n=7):
    return b"\x0d" + struct.pack("<I", n)


def push(k, v):
    return b"\x0e" + text(k) + text(v)


def pop(k):
    return b"\x0f" + text(k)


def barrier(k, world):
    return b"\x12" + text(k) + struct.pack("<q", world)


NUM_KEYS = b"\x07"
CANCEL_WAIT = b"\x0c"


class Client:
    """A connection to a store, after the handshake unless shake is False."""

    def __init__(self, port, source=None, shake=True, limit=300):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=limit, source_address=source)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if shake:
            self.s.sendall(VALIDATE)
            assert self.ask(ping(), 4) == struct.pack("<I", 7)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.s.close()

    def send(self, data):
        self.s.sendall(data)

    def read(self, n):
        got = b""
        while len(got) < n:
            piece = self.s.recv(n - len(got))
            if not piece:
                raise EOFError(f"the end after {got!r}")
            got += piece
        return got

    def ask(self, data, n):
        self.send(data)
        return self.read(n)

    def get(self, k):
        (n,) = struct.unpack("<Q", self.ask(get(k), 8))
        return self.read(n)

    def is_silent(self):
        """True if every earlier request is answered and nothing else arrived: the next bytes are a ping's echo."""
        return self.ask(ping(99), 4) == struct.pack("<I", 99)

    def rest(self):
        """Return all bytes that arrive until the server closes the connection."""
        got = b""
        try:
            while piece := self.s.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        return got

    def reset(self):
        """Close with RST instead of FIN."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()
