"""Rank 1 fails in the first two attempts; the others wait to be stopped then."""
import json
import os
import signal
import sys

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
sys.stdout.write(json.dumps({"attempt": attempt, "rank": rank}) + "\n")
sys.stdout.flush()
if attempt < 2:
    if rank == 1:
        sys.exit(3)
    signal.pause()
