"""Prints its place in the round; if the round has one of SIZES workers, waits until the file WAIT exists.

    rounds.py SIZES WAIT
"""
import json
import os
import sys
import time

keys = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "SLURMD_NODENAME")
sys.stdout.write(json.dumps({k: os.environ.get(k, "") for k in keys}) + "\n")
sys.stdout.flush()
while os.environ["WORLD_SIZE"] in sys.argv[1].split(",") and not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
