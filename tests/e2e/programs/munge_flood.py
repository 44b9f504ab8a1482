"""Keep munged busy with connections that say nothing.

    munge_flood.py SOCKET                 Prints "busy" once munged's queue is full.
    munge_flood.py SOCKET HOST PORT JOB   Also makes ddrund, or a ddrun that starts others, ask it for a credential: prints
                                          "hello" for each one it sends, and "asked" once there was no answer for 7 seconds.
"""
import select
import socket
import struct
import sys
import time

path, callee = sys.argv[1], sys.argv[2:]
QUEUE, SILENCE_S = 60, 7


def silent():
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try:
        s.connect(path)
    except BlockingIOError:  # its queue is full
        s.close()
        return None
    return s


def hello():
    host, port, job = callee
    s = socket.create_connection((host, int(port)), 30)
    body = job.encode() + b"\0stranger\0"
    s.sendall(b"\xdddr\x01" + struct.pack(">H", len(body)) + body)
    return s


busy, asked, since, told, full = [], None, 0.0, False, False
while True:
    while len(busy) < QUEUE:
        more = silent()
        if more is None:
            break
        busy.append(more)
    if not full:
        print("busy", flush=True)
        full = True
    if asked is None and callee:
        print("hello", flush=True)
        asked, since = hello(), time.monotonic()
    ended = select.select(busy if asked is None else [*busy, asked], [], [], 0.05)[0]
    for s in ended:
        s.close()
        if s is asked:
            asked = None
    busy = [s for s in busy if s not in ended]
    if asked is not None and not told and time.monotonic() - since > SILENCE_S:
        print("asked", flush=True)
        told = True
    time.sleep(0.02)
