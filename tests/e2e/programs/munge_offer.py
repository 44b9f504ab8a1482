"""Listen where agents look for ddrund, and say to each that the job's key comes from MUNGE.

    munge_offer.py PORT

Prints "offered" for each hello.
"""
import select
import socket
import struct
import sys

BODY = b"\0\2MUNGE:" + b"A" * 200 + b":\0"  # status, method, credential
REPLY = b"\xdddr\x01" + struct.pack(">H", len(BODY)) + BODY

listener = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
callers = []
while True:
    for s in select.select([listener, *callers], [], [])[0]:
        if s is listener:
            callers.append(s.accept()[0])
            continue
        try:
            said = s.recv(4096)
            if said:
                s.sendall(REPLY)
                print("offered", flush=True)
                continue
        except OSError:
            pass
        callers.remove(s)
        s.close()
