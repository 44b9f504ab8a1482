"""A worker in place of one with NCCL, which needs GPUs: it listens where NCCL's RAS thread does, and answers in the same form.

nccl_ras_worker.py DIRECTORY HOW: the workers exchange their PIDs through DIRECTORY. HOW is `behind` (rank 2 has launched one all-reduce
less than the others), or what a faulty listener does: `silent`, `garbage`, `endless`, `closes`; `stopped` answers on rank 0 only, while
the others are stopped."""

import os
import signal
import socket
import sys

FAULTS = {"silent": b"", "garbage": b"\x1b[2J\xff" * 100, "closes": b""}
directory, how = sys.argv[1:]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
own = os.path.join(directory, str(rank))
with open(own + ".new", "w", encoding="ascii") as f:
    f.write(str(os.getpid()))
os.rename(own + ".new", own)


def answer():
    pids = []
    for i in range(size):
        with open(os.path.join(directory, str(i)), encoding="ascii") as f:
            pids.append(f.read())
    return (f"NCCL version 2.28.9+cuda13.0 compiled with CUDA 13.0\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n=============\n\n"
            "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
            "    #  in group  per comm  per node  per comm  in group\n"
            f"    0         1         1  {size:8}  {size:8}  {size:8}   RUNNING  MISMATCH\n\nErrors\n======\n\nWarnings\n========\n\n"
            "#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
            f"  {size - 1} ranks have launched up to operation 812\n"
            f"  Rank 2 has launched up to operation 811 -- GPU 2 managed by process {pids[2]} on node 127.0.0.1\n\n")


def serve(link):
    got = b""
    while got.count(b"\n") < 3:
        got += link.recv(1000)
    if how in FAULTS:
        link.sendall(FAULTS[how])
    elif how == "endless":
        link.sendall(b"SERVER PROTOCOL 2\nOK\n")
        while True:
            link.sendall(b"x" * 65536)
    else:
        assert got == b"CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n", got
        link.sendall(b"SERVER PROTOCOL 2\nOK\n" + answer().encode())
    if how != "silent":
        link.close()


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
host, port = os.environ["NCCL_RAS_ADDR"].split(":")
listener.bind((host, int(port)))
listener.listen()
print("ready", rank, flush=True)
if how == "stopped" and rank > 0:
    os.kill(os.getpid(), signal.SIGSTOP)
open_links = []
while True:
    client = listener.accept()[0]
    open_links.append(client)
    try:
        serve(client)
    except OSError:
        pass
