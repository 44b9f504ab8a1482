"""many_stores.py CONNECTIONS ROUNDS FILE: a worker that opens many connections to its store in each round, once FILE exists.

Rank 0 prints the store's address. Every worker prints how many connections were not answered. All rounds but the last end with a failure of
rank 0, once all workers have finished.
"""
import os
import socket
import struct
import sys
import time

AT_ONCE = 4
connections, rounds, go = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
address, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["RANK"]
last = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) == rounds - 1
validate = struct.pack("=BI", 0, 0x3C85F7CE)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def connect():
    s = socket.create_connection((address, port), 120)
    s.sendall(validate + struct.pack("=BI", 13, 4711))
    return s


def is_answered(s):
    try:
        return s.recv(4) == struct.pack("=I", 4711)
    except OSError:
        return False
    finally:
        s.close()


def add(n):
    with socket.create_connection((address, port), 120) as s:
        s.sendall(validate + struct.pack("=BQ", 4, 4) + b"done" + struct.pack("=q", n))
        return struct.unpack("=q", s.recv(8))[0]


if rank == "0":
    say(f"store {address} {port}")
while not os.path.exists(go):
    time.sleep(0.01)
refused = 0
for _ in range(connections // AT_ONCE):
    refused += sum(not is_answered(s) for s in [connect() for _ in range(AT_ONCE)])
say(f"refused {refused}")
add(1)
if rank == "0" and not last:
    while add(0) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.05)
    sys.exit(3)
