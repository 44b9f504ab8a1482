"""Random requests, the same to torch's server and to ddrund: every connection must receive the same bytes after every request.

Excluded is where the two differ on purpose (docs/protocol/store-c10d.md): waits for names of queues and barriers, requests
behind an open wait, and a COMPARE_SET that creates nothing while a client waits for its key.
"""

import random
import struct

import pytest

import c10d
from c10d import CANCEL_WAIT, NUM_KEYS, Client
from support import with_torch

pytestmark = with_torch
STORES = ("direct", "relay")

SEEDS = range(4)
STEPS = 3000
CLIENTS = 4
PING = 0x7fffff01  # no other reply has these bytes

KEYS = [b"", b"a", b"ab", b"\x00", b"n1", b"n2", b"\xff" * 40]
VALUES = [b"", b"1", b"-5", b" 12x", b"x", b"\x00\xff", b"9223372036854775807", b"v" * 20000]
QUEUES = [b"q1", b"q2"]
BARRIERS = [b"b1", b"b2"]


def requests(rnd):
    """Return a random request and whether it waits."""
    key, value, keys = rnd.choice(KEYS), rnd.choice(VALUES), rnd.choices(KEYS, k=rnd.randrange(5))
    return rnd.choice([
        lambda: (c10d.set_(key, value), False),
        lambda: (c10d.compare_set(key, b"", value), False),
        lambda: (c10d.compare_set(key, rnd.choice(VALUES), value), False),
        lambda: (c10d.get(key), False),
        lambda: (c10d.add(rnd.choice(KEYS), rnd.choice([0, 1, -7, 1 << 62])), False),
        lambda: (c10d.check(*keys), False),
        lambda: (c10d.wait(*keys), True),
        lambda: (NUM_KEYS, False),
        lambda: (c10d.delete(key), False),
        lambda: (c10d.delete(key), False),
        lambda: (c10d.append(key, value), False),
        lambda: (b"\x0a" + c10d.texts(keys), False),
        lambda: (c10d.multi_set([(k, rnd.choice(VALUES)) for k in keys]), False),
        lambda: (CANCEL_WAIT, False),
        lambda: (c10d.push(rnd.choice(QUEUES), value), False),
        lambda: (c10d.pop(rnd.choice(QUEUES)), False),
        lambda: (b"\x10" + c10d.text(rnd.choice(QUEUES)), False),
        lambda: (c10d.barrier(rnd.choice(BARRIERS), rnd.randrange(1, 50)), True),
    ])()


def heard(client):
    """Return all bytes that have arrived so far, or None if the server has closed the connection."""
    mark = struct.pack("<I", PING)
    got = b""
    try:
        client.send(c10d.ping(PING))
        while not got.endswith(mark):
            piece = client.s.recv(65536)
            if not piece:
                return None
            got += piece
    except ConnectionError:
        return None
    return got[:-4]


class Side:
    """One of the two servers with its clients."""

    def __init__(self, port):
        self.port = port
        self.clients = [Client(port) for _ in range(CLIENTS)]

    def do(self, i, request):
        """Send the request of client i; return what each client receives. Reconnect those that the server closed."""
        self.clients[i].send(request)
        order = [i] + [k for k in range(CLIENTS) if k != i]
        replies = {k: heard(self.clients[k]) for k in order}
        for k, reply in replies.items():
            if reply is None:
                self.clients[k].s.close()
                self.clients[k] = Client(self.port)
        return replies

    def close(self):
        for c in self.clients:
            c.s.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_servers_say_the_same(seed, new_server, torch_store):
    rnd = random.Random(seed)
    sides = [Side(torch_store()), Side(new_server().port)]
    waiting, woken = [False] * CLIENTS, 0
    for step in range(STEPS):
        i = rnd.randrange(CLIENTS)
        request, waits = requests(rnd)
        may_create_nothing = request[0] == 0x02 and any(waiting)
        if may_create_nothing or (waiting[i] and request != CANCEL_WAIT):
            continue
        theirs, ours = (side.do(i, request) for side in sides)
        assert ours == theirs, f"seed {seed}, step {step}: {request!r}"
        for k, reply in ours.items():
            if reply or reply is None:
                woken += waiting[k] and k != i
                waiting[k] = False
        if waits:
            waiting[i] = ours[i] == b""
    assert woken > 10, "too little has happened"
    for side in sides:
        side.close()
