"""The daemon holds the data of an exchange between all nodes once, however many nodes read it slowly."""

import contextlib
import struct

from stranger import EXCHANGE, Stranger, frame
from support import Job, free_port

PIECE = 256 << 10


def give(stranger, round_, rank, name, part):
    for at in range(0, len(part), PIECE):
        data = part[at:at + PIECE]
        head = struct.pack(">IIIB", round_, rank, len(part) - at - len(data), len(name))
        stranger.send(frame(EXCHANGE, head + name + data))


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def memory_of_an_exchange(links, part):
    """Return the growth of the daemon's memory when so many nodes contribute `part` each, and read nothing before all have
    contributed."""
    port = free_port()
    args = [f"--nnodes={links + 1}", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure", "--nproc-per-node=1", "--node-rank=0"]
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(Job(*args, "--heartbeat=100s", "sleep", "1000"))
        others = [stack.enter_context(Stranger(port, i + 1, links + 1)) for i in range(links)]
        plans = [other.hear("plan") for other in others]
        daemon = job.processes("ddrund")[0]
        before = peak(daemon)
        for other, plan in zip(others, plans):  # the first node's agent contributes an empty part when the exchange reaches it
            give(other, plan["round"], plan["node_rank"], b"?hvd/0", part)
        got = 0
        while got < links * len(part):
            kind, data = others[0].next()
            got += len(data) - len(b"?hvd/0") - 13 if kind == EXCHANGE else 0
        return peak(daemon) - before


def test_the_daemon_holds_what_nodes_tell_each_other_once():
    links, part = 24, b"x" * (400 << 10)
    grown = memory_of_an_exchange(links, part)
    assert grown < 5 * links * len(part), f"{grown >> 20} MiB for {links} links with {links * len(part) >> 20} MiB"
