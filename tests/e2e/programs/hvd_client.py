"""A worker that sends the rendezvous server the requests of Horovod's workers, in the same order, but connects to no other
worker.

Addresses are made up: 136 bytes that name the source and the target. Src: Horovod 0.28.1, its gloo.

hvd_client.py WHAT...    each WHAT is one of ACTIONS, below
"""

import os
import socket
import struct
import sys
import time

ADDR = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
ENV = {n: int(os.environ["HOROVOD_" + n]) for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")}
HOST = os.environ["HOROVOD_HOSTNAME"]
RANK = ENV["RANK"]
TIMEOUT = float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
requests = 0
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def exchange(data):
    """Send these bytes on a connection of their own; return the reply, or b"" if there was none."""
    with socket.create_connection(ADDR) as s:
        reply = b""
        try:
            s.sendall(data)
            while chunk := s.recv(1 << 20):
                reply += chunk
        except ConnectionError:
            pass
        return reply


def split(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = [line for line in lines if line.startswith("Content-Length: ")]  # in this spelling, or Horovod loses the body
    assert len(length) == 1, reply[:200]
    assert int(length[0].split(": ")[1]) == len(body), (lines, len(body))
    return int(lines[0].split(" ")[1]), body


def request(method, path, body=b""):
    """Send a request as the real client does: three tries, half a second apart."""
    global requests
    requests += 1
    data = f"{method} /{path} HTTP/1.1\r\nHost: {ADDR[0]}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for left in (2, 1, 0):
        reply = exchange(data)
        if reply or left == 0:
            return split(reply)
        time.sleep(0.5)


def put(path, body=b""):
    assert request("PUT", path, body) == (200, b""), path


def get(path):
    """Return the value, once there is one."""
    end = time.monotonic() + TIMEOUT
    while True:
        status, body = request("GET", path)
        assert status in (200, 404), status
        if status == 200:
            return body
        assert time.monotonic() < end, f"rank {RANK}: {path} has not come"
        time.sleep(0.01)


def address(scope, source, target, size, times):
    """Return the address on which source waits for target."""
    count = source * size + (target if target < source else target - 1) + times
    return struct.pack("<HH4s", 2, 7000 + source, bytes([127, 0, 0, 1])) + scope.encode()[:40].ljust(120, b"\0") + struct.pack("<q", count)


def meet(scope, me, size, times=0):
    """Do what connectFullMesh does for one scope."""
    put(f"{scope}/rank_{me}", socket.gethostname().encode())
    for i in range(me):
        assert request("GET", f"{scope}/rank_{i}")[0] in (200, 404)
    put(f"{scope}/{me}", b"".join(address(scope, me, i, size, times) for i in range(size) if i != me))
    for i in range(size):
        if i == me:
            continue
        get(f"{scope}/{i}")
        table = get(f"{scope}/{i}")
        assert len(table) == 136 * (size - 1), (scope, i, len(table))
        at = me if me < i else me - 1
        assert table[136 * at:136 * at + 136] == address(scope, i, me, size, times), (scope, i, me)


def leave(scope, me):
    assert request("DELETE", f"{scope}/{me}")[0] == 200


def all_scopes(suffix, ranks, times):
    """Do what a process set of these ranks does; local and cross groups are those of its members."""
    local_size, first = ENV["LOCAL_SIZE"], RANK - ENV["LOCAL_RANK"]
    mine = [r for r in ranks if first <= r < first + local_size]
    nodes = sorted({r // local_size for r in ranks})
    local = mine.index(RANK)
    cross = [n for n in nodes if sum(r // local_size == n for r in ranks) > local]
    groups = [("global", ranks.index(RANK), len(ranks)), (f"local_{HOST}", local, len(mine)),
              (f"cross_{local}", cross.index(RANK // local_size), len(cross))]
    for scope, me, size in groups:
        meet(scope + suffix, me, size, times)
        barrier(scope + suffix, me, size, times)
        leave(scope + suffix, me)


def barrier(scope, me, size, times):
    """Wait for all ranks. Horovod's own barrier uses its own connections."""
    if size == 1:
        return
    from train_light import Store  # copies of this file, which only bootstrap, lack it
    store = barrier.store = getattr(barrier, "store", None) or Store()
    name = f"{scope}.{times}" + (f".{HOST}" if scope.startswith("local_") else "")
    if store.add(name, 1) == size:
        store.set(name + ".all", "")
    store.wait(name + ".all")


def init(times=0):
    everybody = list(range(ENV["SIZE"]))
    all_scopes("", everybody, times)
    all_scopes("_process_set_hash_1e9d548172549547", everybody, times)


def bootstrap():
    """Meet and leave without a barrier: nothing is read after the last rank has left."""
    for suffix in ("", "_process_set_hash_1e9d548172549547"):
        for scope, me, size in (("global", RANK, ENV["SIZE"]), (f"local_{HOST}", ENV["LOCAL_RANK"], ENV["LOCAL_SIZE"]),
                                (f"cross_{ENV['LOCAL_RANK']}", ENV["CROSS_RANK"], ENV["CROSS_SIZE"])):
            meet(scope + suffix, me, size)
            leave(scope + suffix, me)


def twice():
    """init, a process set of the even ranks, shutdown, and all of it again."""
    for times in (0, 1000):
        init(times)
        if RANK % 2 == 0:
            all_scopes("_process_set_hash_4a86bb7fe0ee4179", list(range(0, ENV["SIZE"], 2)), times)


def elastic():
    expected = ",".join(str(ENV[n]) for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"))
    put(f"worker_addresses/{HOST}:{ENV['LOCAL_RANK']}", b"\x80\x04")
    assert request("GET", f"rank_and_size/{HOST}:{ENV['LOCAL_RANK']}") == (200, expected.encode())
    assert request("GET", f"rank_and_size/{HOST}:{ENV['LOCAL_SIZE']}")[0] == 404


def fresh():
    """Check that nothing is left of an earlier round."""
    assert request("GET", f"mine/{RANK}")[0] == 404
    put(f"mine/{RANK}", b"here")
    assert get(f"mine/{RANK}") == b"here"


def hostile():
    """Send requests that no Horovod sends: the server refuses each of them, and serves others."""
    get_head = b"GET /a/b HTTP/1.1\r\n"
    assert exchange(get_head + b"X: " + b"x" * 100000 + b"\r\n\r\n")[9:12] in (b"400", b"")
    assert exchange(b"x" * 100000)[9:12] in (b"400", b"")
    assert split(exchange(b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n"))[0] == 400
    assert split(exchange(b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"))[0] == 400
    assert exchange(b"PUT /a/b HTTP/1.1\r\nContent-Length: 1099511627776\r\n\r\n" + b"x" * 100000)[9:12] in (b"413", b"")
    assert split(exchange(b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))[0] == 400
    assert split(exchange(b"GET /a HTTP/1.1\r\n\r\n"))[0] == 400
    assert split(exchange(b"GET /a/b/c HTTP/1.1\r\n\r\n"))[0] == 400
    assert split(exchange(b"BREW /a/b HTTP/1.1\r\n\r\n"))[0] == 400
    assert split(exchange(b"GET /" + b"s" * 600 + b"/k HTTP/1.1\r\n\r\n"))[0] == 400
    assert exchange(b"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nxyz")[9:12] in (b"400", b"")
    assert request("GET", "no_such_scope/0") == (404, b"")


def silent():
    """Open more connections than the server has room for, silent or incomplete: it closes the oldest and serves others."""
    quiet = [socket.create_connection(ADDR) for _ in range(400)]
    for s in quiet[::2]:
        try:
            s.sendall(b"PUT /a/b HTTP/1.1\r\nContent-Length: 5\r\n\r\nx")
        except ConnectionError:
            pass
    put("still/here", b"yes")
    assert get("still/here") == b"yes"
    quiet[0].settimeout(60)
    try:
        assert quiet[0].recv(1) == b""
    except ConnectionResetError:
        pass


def foreign():
    """Check that another user of this machine gets no reply."""
    request("GET", "global/rank_0")
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(0 if exchange(b"GET /global/0 HTTP/1.1\r\n\r\n") == b"" else 1)
    assert os.waitpid(pid, 0)[1] == 0


def gone():
    """Disconnect while the server holds the request."""
    with socket.create_connection(ADDR) as s:
        s.sendall(b"GET /later/0 HTTP/1.1\r\n\r\n")
    put("later/0", b"x")


def sleep():
    print(f"port {ADDR[1]} asleep\n", end="", flush=True)
    time.sleep(1000)


ACTIONS = (bootstrap, twice, elastic, fresh, hostile, silent, foreign, gone, sleep)


def main():
    begin = time.monotonic()
    for word in sys.argv[1:]:
        next(a for a in ACTIONS if a.__name__ == word)()
    print(f"rank {RANK} of {ENV['SIZE']}: {requests} requests in {time.monotonic() - begin:.2f} s\n", end="", flush=True)


main()
