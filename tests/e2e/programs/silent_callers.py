"""Connect to each loopback port on which a uid listens, say nothing, and keep the connections: silent_callers.py UID

Prints "connected" once there is one.
"""
import socket
import sys
import time

LISTENS = "0A"
held = {}
while True:
    with open("/proc/net/tcp", encoding="ascii") as f:
        lines = [line.split() for line in f][1:]
    for words in lines:
        port = int(words[1].split(":")[1], 16)
        if words[3] == LISTENS and words[7] == sys.argv[1] and port not in held:
            try:
                held[port] = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(4)]
            except OSError:  # it has been closed meanwhile
                continue
            if len(held) == 1:
                print("connected", flush=True)
    time.sleep(0.05)
