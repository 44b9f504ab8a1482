"""The store as raw sockets see it: handshakes, ends of connections, many clients, floods and slow readers."""

import contextlib
import resource
import selectors
import socket
import struct
import threading

import pytest

import c10d
from c10d import CANCEL_WAIT, NUM_KEYS, VALIDATE, Client
from support import until

STORES = ("direct", "relay")
MIB = 1 << 20
CROWD = 15000
CROWD_MEMORY = 64 * MIB

OLD_SET = b"\x00" + c10d.text(b"/old") + c10d.text(b"x")


# ---- handshakes ----

FAULTS = {
    "nothing": [],
    "another operation": [c10d.set_(b"/bad", b"x")],
    "another operation, then more": [c10d.set_(b"/bad", b"x"), c10d.set_(b"/bad", b"x")],
    "http": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "tls": [bytes.fromhex("16030100"), b"x" * 512],
    "a client of torch 2.1": [OLD_SET],
    "a wrong magic": [bytes.fromhex("00cef7853d") + c10d.set_(b"/bad", b"x")],
    "half a magic, then the wrong half": [VALIDATE[:3], b"\x00\x00" + c10d.set_(b"/bad", b"x")],
    "validate twice": [VALIDATE, VALIDATE + c10d.set_(b"/bad", b"x")],
    "an unknown operation": [VALIDATE, b"\x13" + c10d.set_(b"/bad", b"x")],
    "an operation of 255": [VALIDATE, b"\xff" * 100],
    "a key of 8193 bytes": [VALIDATE, c10d.set_(b"/" * 8193, b"x") + c10d.set_(b"/bad", b"x")],
    "a key of 2^63 bytes": [VALIDATE, b"\x01" + struct.pack("<Q", 1 << 63) + b"x" * 5000],
    "a value of 2^40 bytes": [VALIDATE, b"\x01" + c10d.text(b"/bad") + struct.pack("<Q", 1 << 40) + b"x" * 5000],
    "131073 keys": [VALIDATE, b"\x06" + struct.pack("<Q", 131073) + c10d.text(b"/k") * 1000],
    "a sum of no number": [VALIDATE, c10d.set_(b"/text", b"x") + c10d.add(b"/text", 1) + c10d.set_(b"/bad", b"x")],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_client_is_closed_without_an_answer(store, fault):
    with Client(store.port) as good, Client(store.port, shake=False) as c:
        try:
            for piece in FAULTS[fault]:
                c.send(piece)
            if fault == "nothing":
                c.s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # was closed already
        assert c.rest() == b""
        assert good.ask(c10d.check(b"/bad"), 1) == b"\x01"
        assert good.ask(c10d.check(b"/old"), 1) == b"\x01"


def test_handshake_may_arrive_in_pieces(store):
    for cut in range(1, 10):
        with Client(store.port, shake=False) as c:
            whole = VALIDATE + c10d.ping(5)
            c.send(whole[:cut])
            with Client(store.port) as other:  # the server has seen the first piece by now
                other.is_silent()
            assert c.ask(whole[cut:], 4) == struct.pack("<I", 5)


def test_limits_of_torch_are_within_ours(store):
    with Client(store.port) as c:
        key, value = b"/" * 8192, b"v" * (8 * MIB)
        c.send(c10d.set_(key, value))
        assert c.get(key) == value
        assert c.ask(c10d.check(*[b"/none"] * 131072), 1) == b"\x01"
        assert c.ask(c10d.delete(key), 8) == struct.pack("<q", 1)


@pytest.mark.parametrize("version, set_key, delete, cancel", [("2.1", OLD_SET, 7, b"\x0b"), ("1.13", OLD_SET, 8, None)])
def test_older_clients_are_served_when_asked_for(new_server, version, set_key, delete, cancel):
    server = new_server(f"--old-clients={version}")
    with Client(server.port, shake=False) as old, Client(server.port, shake=False) as silent, Client(server.port) as new:
        old.send(set_key)
        assert old.ask(b"\x02" + c10d.text(b"/old"), 9) == c10d.text(b"x")
        assert new.get(b"/old") == b"x"
        old.send(b"\x05" + c10d.texts([b"/later"]))  # times out in the client
        if cancel:
            assert old.ask(cancel, 1) == b"\x01"
        else:  # 1.13 sends nothing and continues; its second connection stays silent
            assert silent.ask(b"\x07" + c10d.text(b"/old"), 1) == b"\x03"
        assert old.ask(bytes([delete]) + c10d.text(b"/old"), 8) == struct.pack("<q", 1)
        new.send(c10d.set_(b"/later", b""))
        assert new.is_silent()
        assert old.ask(b"\x06", 8) == struct.pack("<q", 1)  # in step: no stray byte of the wait


# ---- the end of a connection ----

@pytest.mark.parametrize("end", ["fin", "reset", "reset with a reply unread", "fin behind a wait",
                                 "fin of much behind a wait"])
def test_what_was_sent_before_the_end_counts(store, end):
    with Client(store.port) as watch:
        for i in range(30):
            key = f"/{end}/{i}".encode()
            c = Client(store.port)
            if end == "reset with a reply unread":
                c.send(NUM_KEYS)
                select_readable(c.s)
            if end.endswith("behind a wait"):
                c.send(c10d.wait(b"/never"))
            if "much" in end:
                c.send(c10d.set_(b"/much", b"x" * 1000) * 100)  # more than ddrund keeps, less than the kernel keeps
            c.send(c10d.set_(key, b"x"))
            if end.startswith("reset"):
                c.reset()
            else:
                c.s.close()
            assert watch.ask(c10d.wait(key), 1) == b"\x00"


def select_readable(s):
    with selectors.DefaultSelector() as sel:
        sel.register(s, selectors.EVENT_READ)
        assert sel.select(60)


def test_client_that_leaves_is_waited_for_no_more(new_server):
    server = new_server()
    with Client(server.port) as c:
        gone = [Client(server.port) for _ in range(20)]
        for g in gone:
            g.send(c10d.wait(b"/queue"))
            g.send(c10d.push(b"/behind", b"x"))  # carried out when the wait ends
        for g in gone[:-1]:
            g.s.close()
        until(lambda: c.ask(b"\x10" + c10d.text(b"/behind"), 8) == struct.pack("<q", 19), say="the end of 19 waits")
        c.send(c10d.push(b"/queue", b"for the last one"))
        assert gone[-1].read(1) == b"\x00"
        gone[-1].s.close()


def test_end_of_the_server_is_seen_by_all(new_server):
    server = new_server()
    with Client(server.port) as idle, Client(server.port) as waits:
        waits.send(c10d.wait(b"/never"))
        server.stop()
        assert idle.rest() == b"" and waits.rest() == b""


# ---- order ----

def test_requests_sent_at_once_are_answered_in_order(store):
    with Client(store.port) as c:
        c.send(b"".join(c10d.add(b"/pipelined", 1) for _ in range(20000)))
        for i in range(1, 20001):
            assert c.read(8) == struct.pack("<q", i)


def test_get_behind_a_wait_gets_the_value(store):
    with Client(store.port) as a, Client(store.port) as b:
        a.send(c10d.wait(b"/one trip") + c10d.get(b"/one trip"))
        b.send(c10d.set_(b"/one trip", b"value"))
        assert a.read(1 + 8 + 5) == b"\x00" + c10d.text(b"value")


def test_wait_is_cancelled_with_one_byte(store):
    with Client(store.port) as a, Client(store.port) as b:
        for i in range(100):
            key = f"/cancelled/{i}".encode()
            a.send(c10d.wait(key))
            b.send(c10d.set_(key, b""))
            a.send(CANCEL_WAIT)  # crosses the end of the wait, or not
            first = a.read(1)
            assert first == b"\x01" or (first == b"\x00" and a.read(1) == b"\x01")
            assert a.is_silent()


# ---- many clients ----

def test_thousand_clients_on_one_key_wake_at_once(store):
    clients = [Client(store.port) for _ in range(1000)]
    with Client(store.port) as setter:
        for c in clients:
            c.send(c10d.wait(b"/start"))
        assert setter.is_silent()
        setter.send(c10d.set_(b"/start", b"now"))
        assert [c.read(1) for c in clients] == [b"\x00"] * 1000
        assert all(c.is_silent() for c in clients)
        for i, c in enumerate(clients):
            c.send(c10d.barrier(b"/together", 1000))
        assert [c.read(1) for c in clients] == [b"\x00"] * 1000
    for c in clients:
        c.s.close()


@pytest.fixture
def many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    if before[1] < CROWD + 100:
        pytest.skip(f"only {before[1]} open files are allowed")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_15000_connections_fit_in_64_mib(new_server, many_files):
    server = new_server()
    before = server.rss()
    # several source addresses, because each has ports for some 28,000 connections only
    clients = [Client(server.port, source=(f"127.0.0.{2 + i % 8}", 0)) for i in range(CROWD)]
    try:
        grown = server.rss() - before
        for c in clients[::100]:
            assert c.is_silent()
        assert server.rss() <= CROWD_MEMORY, f"{server.rss()} bytes"
        assert grown / CROWD < 1024, f"{grown / CROWD:.0f} bytes for one connection"
    finally:
        for c in clients:
            c.s.close()


# ---- misbehaving clients ----

def test_slow_reader_costs_little_and_holds_up_nobody(new_server):
    server = new_server()
    with Client(server.port) as slow, Client(server.port) as other:
        value = bytes(range(256)) * 4096
        other.send(c10d.set_(b"/mib", value))
        assert other.is_silent()
        before = server.rss()
        slow.s.settimeout(120)
        sender = threading.Thread(target=slow.send, args=(c10d.get(b"/mib") * 300,))
        sender.start()
        for i in range(1000):
            assert other.ask(c10d.add(b"/meanwhile", 1), 8) == struct.pack("<q", i + 1)
        assert server.rss() < before + 16 * MIB  # not 300 MiB
        for _ in range(300):
            assert slow.read(8) == struct.pack("<Q", MIB)
            assert slow.read(MIB) == value
        sender.join()


def test_value_stays_whole_for_a_slow_reader_while_others_change_it(new_server):
    server = new_server()
    with Client(server.port) as slow, Client(server.port) as other:
        value = bytes(range(256)) * (16 * 4096)
        other.send(c10d.set_(b"/v", value))
        assert other.is_silent()
        slow.send(c10d.get(b"/v"))
        select_readable(slow.s)
        other.send(c10d.append(b"/v", b"more") + c10d.set_(b"/v", b"new") + c10d.delete(b"/v"))
        other.read(8)
        assert slow.read(8) == struct.pack("<Q", len(value))
        assert slow.read(len(value)) == value


def test_flood_holds_up_nobody(store):
    stop = threading.Event()
    with Client(store.port) as flood, Client(store.port) as other:
        other.send(c10d.multi_set([(f"/list/{i}".encode(), b"") for i in range(2000)]))

        def send():
            with contextlib.suppress(OSError):  # the end of the test
                while not stop.is_set():
                    flood.send(b"\x11" * 1000)  # LIST_KEYS: one byte, and 40 KiB to answer

        def read():
            with contextlib.suppress(OSError):
                while not stop.is_set() and flood.s.recv(1 << 20):
                    pass

        threads = [threading.Thread(target=f) for f in (send, read)]
        for t in threads:
            t.start()
        for i in range(200):
            assert other.ask(c10d.ping(i), 4) == struct.pack("<I", i)
        stop.set()
        flood.s.shutdown(socket.SHUT_RDWR)
        for t in threads:
            t.join()


def test_full_store_closes_who_would_fill_it_and_serves_the_others(new_server):
    server = new_server("--max-memory=32M")
    with Client(server.port) as good:
        good.send(c10d.set_(b"/kept", b"value"))
        with Client(server.port) as greedy:
            try:
                for i in range(100):
                    greedy.send(c10d.set_(f"/{i}".encode(), b"x" * MIB))
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert greedy.rest() == b""
        assert good.get(b"/kept") == b"value"
        for i in range(100):
            good.ask(c10d.delete(f"/{i}".encode()), 8)
        good.send(c10d.set_(b"/again", b"y" * MIB))
        assert good.get(b"/again") == b"y" * MIB


def test_long_request_of_one_holds_up_nobody(store):
    pairs = [(f"/multi/{i}".encode(), b"x" * 100) for i in range(32000)]
    with Client(store.port) as slow, Client(store.port) as other:
        request = c10d.multi_set(pairs)
        slow.send(request[:-1])
        assert other.ask(c10d.check(pairs[0][0]), 1) == b"\x01"  # nothing is done before it is whole
        slow.send(request[-1:])
        assert other.ask(c10d.wait(pairs[-1][0]), 1) == b"\x00"
        assert other.ask(c10d.check(*[k for k, _ in pairs]), 1) == b"\x00"
