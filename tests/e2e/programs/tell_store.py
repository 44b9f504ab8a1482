"""Rank 0 prints the store's address; all ranks wait to be ended."""
import os
import signal
import sys

if os.environ["RANK"] == "0":
    sys.stdout.write(f"store {os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']}\n")
    sys.stdout.flush()
signal.pause()
