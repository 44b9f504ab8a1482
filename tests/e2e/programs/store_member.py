"""A worker that meets the others in the store at MASTER_ADDR: it sets a key, waits for those of all others, and prints what it sees.

fail   the last rank fails in the first round
stay   wait for a key that nobody sets, until the store is lost
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import c10d  # noqa: E402

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
how = sys.argv[1] if len(sys.argv) > 1 else ""
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert address == "127.0.0.1", address

with c10d.Client(port, limit=120) as client:
    old = int.from_bytes(client.ask(c10d.add(b"/joined", 0), 8), "little") if rank == 0 else 0
    client.send(c10d.set_(b"/rank%d" % rank, b"%d" % restarts))
    for other in range(world):
        assert client.ask(c10d.wait(b"/rank%d" % other), 1) == b"\0"
        assert client.ask(c10d.get(b"/rank%d" % other), 9) == c10d.text(b"%d" % restarts), "a value of another round"
    client.send(c10d.barrier(b"/all", world))
    assert client.s.recv(1) == b"\0"
    print(f"rank={rank} port={port} restarts={restarts} old={old}", flush=True)
    if how == "fail" and rank == world - 1 and restarts == 0:
        sys.exit(9)
    if how in ("fail", "stay") and (restarts == 0 or how == "stay"):
        client.send(c10d.wait(b"/never"))
        try:
            lost = client.s.recv(1) == b""
        except ConnectionError:
            lost = True
        print(f"rank={rank} lost={lost}", flush=True)
        if how == "stay" and restarts == 0:
            sys.exit(0 if lost else 8)
