"""Takes a second to end after its first signal, and then prints which signals it received."""
import os
import signal
import sys
import time

got = []
for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(sig, lambda n, _: got.append(n))
os.write(1, b"ready\n")
while not got:  # no pause(): a signal may arrive right before it
    time.sleep(0.02)
end = time.monotonic() + 1
while time.monotonic() < end:
    time.sleep(0.05)
os.write(1, f"got {' '.join(map(str, got))} only\n".encode())
sys.exit(0)
