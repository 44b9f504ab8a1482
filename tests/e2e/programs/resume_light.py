"""A training with the output of resume_torch.py, but without PyTorch: each rank speaks c10d to the job's store itself. For faults
that the ranks do not observe, such as a cut network. At USR1 each rank says that it has saved.

    resume_light.py CHECKPOINT END
"""
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from train_light import Store

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NODE = os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def say(**what):
    sys.stdout.write(json.dumps({"rank": RANK, "world": WORLD, "node": NODE,
                                 "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), **what}) + "\n")
    sys.stdout.flush()


def save(path, step):
    """Save so that a reader sees the old checkpoint or the new one, never a part of one."""
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(str(step))
    os.replace(path + ".new", path)


def load(path):
    if not os.path.exists(path):
        return 0
    with open(path, encoding="ascii") as f:
        return int(f.read())


def main(checkpoint, end):
    signal.signal(signal.SIGUSR1, lambda *_: os.write(1, (json.dumps({"saved": RANK, "node": NODE}) + "\n").encode()))
    store = Store()
    step = first = load(checkpoint)
    stop = 0
    while stop == 0:
        store.add(f"/stop/{step}", int(os.path.exists(end)))
        store.barrier(f"step/{step}", WORLD)
        stop = store.add(f"/stop/{step}", 0)
        step += 1
        if RANK == 0:
            save(checkpoint, step)
        if step == first + 1:
            say(first=first)
        time.sleep(0.02)  # several ranks share a CPU, and a test waits for something else meanwhile
    store.add("/steps", step)
    store.barrier("last", WORLD)
    say(steps=step, equal=store.add("/steps", 0) == WORLD * step)
    store.barrier("over", WORLD)


main(sys.argv[1], sys.argv[2])
