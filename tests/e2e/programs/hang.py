"""hang.py HOW: the ranks in $RANKS (default 1) give $SIGNS signs of life (default 3) and then hang. The others continue until
ddrun ends them; with $RANKS, and from the second attempt on, they exit with 0.

HOW: output (print), file (touch the heartbeat file), deaf (as output, but SIGABRT makes the rank exit with 0).
PACE names a directory: sign N creates the file N.RANK there, and the next sign waits for the file go.N."""
import faulthandler
import os
import signal
import sys
import time

HOW = sys.argv[1]
HANGS = os.environ["RANK"] in os.environ.get("RANKS", "1").split(",") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
SIGNS = int(os.environ.get("SIGNS", "3"))
PACE = os.environ.get("PACE")
faulthandler.enable()
if HOW == "deaf":
    signal.signal(signal.SIGABRT, lambda *_: os._exit(0))


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def step(number):
    if HOW == "file":
        os.utime(os.environ["DDRUN_HEARTBEAT_FILE"])
    else:
        print("step", flush=True)
    if PACE:
        open(f"{PACE}/{number}.{os.environ['RANK']}", "w", encoding="ascii").close()
        wait_for(f"{PACE}/go.{number}")
    else:
        time.sleep(0.1)


def wait_for_ever():
    while True:
        time.sleep(1000)


for n in range(SIGNS):
    step(n)
if HANGS:
    wait_for_ever()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "RANKS" not in os.environ:
    while True:
        step(SIGNS)
