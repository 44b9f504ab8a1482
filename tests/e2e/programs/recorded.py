"""recorded.py FAIL DIRECTORY: under PyTorch's decorator, rank 0 exits with 0 and rank FAIL raises, once rank 0 has been reaped and
all other ranks run; the others stay. The ranks exchange their PIDs through DIRECTORY."""

import os
import sys
import time


def pid(rank):
    try:
        with open(os.path.join(sys.argv[2], f"pid.{rank}"), encoding="ascii") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def main():
    rank = int(os.environ["RANK"])
    with open(os.path.join(sys.argv[2], f"pid.{rank}"), "w", encoding="ascii") as f:
        f.write(str(os.getpid()))
    if rank == 0:
        return
    if rank == int(sys.argv[1]):
        while not all(map(pid, range(int(os.environ["WORLD_SIZE"])))) or os.path.exists(f"/proc/{pid(0)}"):
            time.sleep(0.05)
        raise ValueError("boom of rank %d\nsecond line" % rank)
    time.sleep(600)


if os.environ["RANK"] in ("0", sys.argv[1]):
    from torch.distributed.elastic.multiprocessing.errors import record

    main = record(main)
main()
