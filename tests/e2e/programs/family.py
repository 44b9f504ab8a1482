"""Each worker starts two processes, a child and an orphan in a session of its own; then all wait.

The worker prints 'ready' once both exist."""
import os
import signal
import sys


def sleeper():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def fork_sleeper(detached):
    r, w = os.pipe()
    if os.fork() == 0:
        if detached:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        os.write(w, b"x")
        sleeper()
    os.read(r, 1)


fork_sleeper(False)
fork_sleeper(True)
sys.stdout.write("ready\n")
sys.stdout.flush()
if os.environ.get("FAMILY_HOW") == "exit":
    sys.exit(0)
signal.pause()
