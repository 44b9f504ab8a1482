"""A worker for test_stacks.py: every rank waits in a function of its own; rank FAILS fails once all others wait.

stacks.py PLACE FAILS [RANK:FUNCTION ...]
"""

import os
import sys
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE, FAILS = sys.argv[1], int(sys.argv[2])


def ready():
    open(os.path.join(PLACE, f"ready-{RANK}"), "w").close()


def train_step():
    ready()
    time.sleep(1000)


def read_data():
    ready()
    time.sleep(1000)


def fail():
    while not all(os.path.exists(os.path.join(PLACE, f"ready-{rank}")) for rank in range(SIZE) if rank != RANK):
        time.sleep(0.05)
    if os.path.exists(os.path.join(PLACE, "wait")):  # for the test to stop a rank first
        ready()
        while os.path.exists(os.path.join(PLACE, "wait")):
            time.sleep(0.05)
    raise ValueError("boom")


what = dict(a.split(":") for a in sys.argv[3:]).get(str(RANK), "train_step")
fail() if RANK == FAILS else {"train_step": train_step, "read_data": read_data}[what]()
