"""store_caller.py ADDRESS PORT KEY SOURCE_PORT TIMES: look up KEY in the store on TIMES connections, from one port or any (0).

Prints "connected" after connect() and "answered" after the first answer; at the end "absent" or "present".
"""
import socket
import struct
import sys

address, port, key, source, times = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4]), int(sys.argv[5])
request = struct.pack("=BI", 0, 0x3C85F7CE) + struct.pack("=BQQ", 5, 1, len(key)) + key
present, refused, failed = False, 0, 0
for i in range(times):
    with socket.socket() as s:
        s.settimeout(60)
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves no TIME_WAIT
            s.bind(("", source))
            s.connect((address, port))
        except OSError:  # all ports are taken just now
            failed += 1
            continue
        if i == 0:
            print("connected", flush=True)
        try:
            s.sendall(request)
            answer = s.recv(1)
        except ConnectionError:
            answer = b""
        refused += answer == b""
        present = present or answer == b"\0"
        if i == 0:
            print("answered", flush=True)
print(f"refused {refused} unconnected {failed}", flush=True)
print("present" if present else "absent", flush=True)
