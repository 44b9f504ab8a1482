"""A worker of an elastic job, without PyTorch: records RANK/WORLD_SIZE, the run id and its parent in $ROUND_DIR/seen, then
obeys the file $ROUND_DIR/do.

$ROUND_DIR/do: "fail N" (rank N exits with 5, once), "go" (exit with 0); the worker waits while neither applies to it.
"""
import os
import signal
import sys
import time

folder = os.environ["ROUND_DIR"]
rank, world, attempt = (os.environ[n] for n in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
with open(os.path.join(folder, "seen"), "a", encoding="ascii") as f:
    f.write(f"{rank}/{world} {os.environ['TORCHELASTIC_RUN_ID']} {os.getppid()}\n")
while True:
    try:
        with open(os.path.join(folder, "do"), encoding="ascii") as f:
            words = f.read().split()
    except FileNotFoundError:
        words = []
    if words[:1] == ["go"]:
        break
    if words[:1] == ["fail"] and words[1] == rank and not os.path.exists(os.path.join(folder, "failed")):
        open(os.path.join(folder, "failed"), "w", encoding="ascii").close()
        sys.exit(5)
    time.sleep(0.02)
