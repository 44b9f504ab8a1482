"""Reports its place in the round as one line of JSON, then waits until the file RELEASE exists.

    worker.py RELEASE
"""
import json
import os
import sys
import time

NUMBERS = {"rank": "RANK", "size": "WORLD_SIZE", "round": "DDRUN_ROUND", "restarts": "TORCHELASTIC_RESTART_COUNT"}
place = {key: int(os.environ[name]) for key, name in NUMBERS.items()}
sys.stdout.write(json.dumps({**place, "node": os.environ["FAULTS_NODE"]}) + "\n")
sys.stdout.flush()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
