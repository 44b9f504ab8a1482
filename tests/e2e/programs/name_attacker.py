"""name_attacker.py UID NUMBER [NAME]: hide the agents of a machine among sockets of another user, until stdin is closed.

Runs as UID, makes NUMBER listening sockets with names like an agent's, of which every hundredth has a full queue, and prints
"ready". With NAME it then connects to that socket without pause."""

import os
import resource
import select
import socket
import sys

uid, number, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
held = []
for i in range(number):
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"\0ddrun-ctl/{i}/{os.getpid():08x}{i:08x}")
    s.listen(0)
    held.append(s)
    if i % 100 == 0:
        c = socket.socket(socket.AF_UNIX)
        c.connect(s.getsockname())
        held.append(c)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0 if name else None)[0]:
    with socket.socket(socket.AF_UNIX) as s:
        s.setblocking(False)
        try:
            s.connect("\0" + name[0])
        except OSError:
            pass
