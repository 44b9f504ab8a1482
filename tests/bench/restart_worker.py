"""A worker of bench_restart.py: a gloo group whose rank 1 dies in its first attempt, once the group has met; the next attempt must
not read what it left. Writes when it began, died and finished into $STAMPS."""
import os
import time


def stamp(what):
    with open(os.environ["STAMPS"], "a", encoding="ascii") as f:
        f.write(f"{what} {attempt} {rank} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")


rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
stamp("began")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
first = not os.path.exists(os.environ["STAMPS"] + ".died")
dist.barrier()
if first:
    if rank == 1:
        open(os.environ["STAMPS"] + ".died", "w", encoding="ascii").close()
        stamp("died")
        os._exit(5)
    dist.all_reduce(value)  # fails, or waits to be stopped
assert value.item() == int(os.environ["WORLD_SIZE"])
dist.barrier()
stamp("finished")
dist.destroy_process_group()
