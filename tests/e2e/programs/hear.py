"""hear.py SIGNAL...: print a line of JSON for every signal caught; ranks in $DEAF catch none.

The worker prints 'ready' first, and creates the file $READY.RANK, if set, and $HEARD.RANK at each signal. It exits with 128
+ 15 at SIGTERM, and with 0 once the file $GO exists."""
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
