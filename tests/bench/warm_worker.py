"""A worker of bench_warm.py: a gloo group, whose rank 1 dies in the first attempt. Appends the times to $STAMPS."""
import os
import time

import torch
import torch.distributed as dist

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def stamp(what):
    with open(os.environ["STAMPS"], "a", encoding="ascii") as f:
        f.write(f"{what} {attempt} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")


dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
stamp("reduced")
dist.barrier()
if attempt == 0:
    if os.environ["RANK"] == "1":
        stamp("died")
        os._exit(5)
    dist.all_reduce(value)  # fails, or waits to be stopped
dist.destroy_process_group()
