"""idle.py HOW SECONDS: workers that print nothing while they work for SECONDS, and then exit with 0.

HOW: cpu (compute), io (read a file), network (send to each other), wait (rank 0 computes, the others wait for it), stuck (the same, but
rank 0 prints a line and then sleeps), stop (rank 1 stops itself)."""
import os
import signal
import socket
import sys
import time

HOW, END = sys.argv[1], time.monotonic() + float(sys.argv[2])
RANK = int(os.environ["RANK"])


def compute():
    """Use a processor for an eighth of the time, so that the machine has room for other tests."""
    while (now := time.monotonic()) < END:
        while time.monotonic() < now + 0.02:
            pass
        time.sleep(0.14)


def read():
    while time.monotonic() < END:
        with open(sys.executable, "rb") as f:
            f.read(1 << 20)
        time.sleep(0.05)


def pair():
    """Connect ranks 0 and 1; the others have no part."""
    if RANK == 0:
        server = socket.create_server(("127.0.0.1", 0))
        with open(f"{os.environ['PLACE']}/port.tmp", "w", encoding="ascii") as f:
            f.write(str(server.getsockname()[1]))
        os.rename(f"{os.environ['PLACE']}/port.tmp", f"{os.environ['PLACE']}/port")
        return server.accept()[0]
    while not os.path.exists(f"{os.environ['PLACE']}/port"):
        time.sleep(0.01)
    with open(f"{os.environ['PLACE']}/port", encoding="ascii") as f:
        return socket.create_connection(("127.0.0.1", int(f.read())))


def talk(s):
    while time.monotonic() < END:
        s.sendall(bytes(20000))
        time.sleep(0.05)
    s.shutdown(socket.SHUT_WR)


def listen(s):
    while s.recv(1 << 20):
        pass


def main():
    if HOW == "cpu":
        compute()
    elif HOW == "io":
        read()
    elif HOW == "stop" and RANK == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif HOW == "stop":
        time.sleep(10000)
    else:
        s = pair()
        if RANK == 1:
            listen(s)
        elif HOW == "network":
            talk(s)
        else:
            compute()
        if HOW == "stuck" and RANK == 0:
            print("computed", flush=True)
            time.sleep(10000)


main()
