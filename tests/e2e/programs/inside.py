"""A worker in a container: prints what it sees there, meets the others in the store, then does what its argument states. No
torch."""

import json
import os
import signal
import socket
import struct
import sys
import time

E = os.environ


def text(b):
    return struct.pack("<Q", len(b)) + b


def meet(where):
    """Wait until all ranks have set their keys (docs/protocol/store-c10d.md)."""
    me, n = int(E["RANK"]), int(E["WORLD_SIZE"])
    with socket.create_connection((E["MASTER_ADDR"], int(E["MASTER_PORT"])), 60) as s:
        s.sendall(bytes.fromhex("00cef7853c") + b"\x01" + text(b"%s/%d" % (where, me)) + text(b"x"))
        s.sendall(b"\x06" + struct.pack("<Q", n) + b"".join(text(b"%s/%d" % (where, i)) for i in range(n)))
        return s.recv(1) == b"\x00"


def say(**what):
    os.write(1, (json.dumps({"rank": int(E["RANK"]), **what}) + "\n").encode())


def hear():
    """Print each signal; return some time after SIGTERM, so that a second one would be printed."""
    seen = []
    for sig in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(sig, lambda n, _: (seen.append(n), say(signal=n)))
    say(ready=True)
    while signal.SIGTERM not in seen:
        time.sleep(0.02)
    return 0


def beat():
    for _ in range(180):
        os.utime(int(E["DDRUN_HEARTBEAT_FD"]))
        time.sleep(0.1)
    say(path_is_there=os.path.exists(E["DDRUN_HEARTBEAT_FILE"]))
    return 0


def stay():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    say(ready=True)
    time.sleep(600)
    return 0


how = sys.argv[1]
try:
    met = meet(b"in")
except OSError as e:
    met = str(e)
say(met=met, uid=os.getuid(), user=os.readlink("/proc/self/ns/user"), mounts=os.readlink("/proc/self/ns/mnt"),
    scontrol=os.path.exists("/usr/bin/scontrol"), nodes=E.get("DDRUN_NODES"), cpus=len(os.sched_getaffinity(0)))
if met is True:
    meet(b"out")  # no rank ends before all have printed
sys.exit(int(how) if how.isdigit() else {"hear": hear, "beat": beat, "stay": stay}[how]())
