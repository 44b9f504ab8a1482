"""knock.py HOST PORT: print 'answered' if a server there replies to a c10d client, else 'turned away'."""
import socket
import struct
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2])), 300) as s:
    s.settimeout(300)
    s.sendall(struct.pack("=BI", 0, 0x3C85F7CE) + struct.pack("=BI", 13, 4711))
    try:
        answer = s.recv(4)
    except ConnectionError:
        answer = b""
print("answered" if answer == struct.pack("=I", 4711) else "turned away")
