"""A listener that is not part of ddrun: squatter.py silent|garbage|close|deaf|full|bound PORT...

It listens on all IPv6 and IPv4 addresses, as the ddrun daemon does.
"""

import errno
import selectors
import signal
import socket
import sys
import time


def listen(port):
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def bind(port):
    """Bind without SO_REUSEADDR, so that nobody else can; wait for connections of an earlier job in TIME_WAIT (60 s)."""
    held = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    end = time.monotonic() + 90
    while True:
        try:
            held.bind(("", port))
            return held
        except OSError as e:
            if e.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
            time.sleep(0.1)


def fill(port):
    """Listen, and fill the queue of connections, which are never accepted: further ones get no answer."""
    held = listen(port)
    held.listen(0)
    callers = [held]
    for _ in range(3):
        caller = socket.socket()
        caller.setblocking(False)
        caller.connect_ex(("127.0.0.1", port))
        callers.append(caller)
    return callers


def main(how, ports):
    if how in ("bound", "full"):  # a bound port without a listener refuses connections
        held = [(fill if how == "full" else bind)(port) for port in ports]
        print("listening", flush=True)
        while held:
            signal.pause()
    selector = selectors.DefaultSelector()
    for port in ports:
        selector.register(listen(port), selectors.EVENT_READ)
    print("listening", flush=True)
    guests = []
    while True:
        for key, _ in selector.select():
            if how == "deaf":
                selector.unregister(key.fileobj)
                continue
            guest, peer = key.fileobj.accept()
            print("guest", peer[0], key.fileobj.getsockname()[1], flush=True)
            if how == "garbage":
                try:
                    guest.send(bytes(range(256)) * 16)
                except OSError:
                    pass
            if how == "close":
                guest.close()
            else:
                guests.append(guest)


main(sys.argv[1], [int(port) for port in sys.argv[2:]])
