"""port_attacker.py PORT: as another user of the machine, try to listen there by every means, and answer callers, until SIGTERM.

Prints "tried" after the first round of attempts."""

import itertools
import signal
import socket
import sys

port = int(sys.argv[1])
over, got = [], []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))


def attempt(family, host, options):
    s = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in options:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        s.bind((host, port))
        s.listen()
        s.setblocking(False)
        got.append(s)
    except OSError:
        s.close()


WAYS = list(itertools.product(((socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::"), (socket.AF_INET6, "::1")),
                              ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT))))
tried = False
while not over:
    for (family, host), options in WAYS:
        attempt(family, host, options)
    if not tried:
        tried = True
        print("tried", flush=True)
    for s in got:
        try:
            s.accept()[0].sendall(b"an impostor")
        except OSError:
            pass
