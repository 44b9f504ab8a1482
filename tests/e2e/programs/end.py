"""end.py RANK HOW [deaf]: that rank ends by HOW (a number: exit code; a name: the signal with which it kills itself); the
others wait forever. deaf: all ranks ignore SIGTERM."""
import os
import signal
import sys

rank, how = int(sys.argv[1]), sys.argv[2]
if len(sys.argv) > 3 and sys.argv[3] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if int(os.environ["RANK"]) == rank:
    if how.isdigit():
        sys.exit(int(how))
    os.kill(os.getpid(), getattr(signal, "SIG" + how))
signal.pause()
