"""Prints a line of JSON for every signal that it catches: hear.py SIGNAL... ; ranks in $DEAF catch none.

Says 'ready' first, and makes the file $READY.RANK where that is set, and $HEARD.RANK with each signal. Ends with the signal's number + 128 when it hears TERM, with 0
when the file $GO is there."""
import json
import os
import signal
import sys
import time

RANK = int(os.environ["RANK"])


def say(**what):
    os.write(1, (json.dumps({"rank": RANK, **what}) + "\n").encode())


def touch(name):
    if name in os.environ:
        open(f"{os.environ[name]}.{RANK}", "w").close()


def heard(number, _):
    say(signal=signal.Signals(number).name, at=time.time())
    touch("HEARD")
    if number == signal.SIGTERM:
        os._exit(128 + number)


if str(RANK) not in os.environ.get("DEAF", "").split(","):
    for name in sys.argv[1:]:
        signal.signal(signal.Signals["SIG" + name], heard)
say(ready=True)
touch("READY")
while "GO" not in os.environ or not os.path.exists(os.environ["GO"]):
    time.sleep(0.02)
