"""All-reduce over NCCL, on the GPU of the local rank. The last rank then does what the argument names, in round 0.

Prints a line of JSON: rank, round, sum, host (NCCL's name of it), seconds from the start to the first sum.
"""

import datetime
import json
import os
import sys
import time

begin = time.monotonic()

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
this_round = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=float(os.environ.get("NCCL_RANKS_TIMEOUT", "600"))))


def all_reduce():
    numbers = torch.full((1 << 16,), float(rank + 1), device=device)
    dist.all_reduce(numbers)
    return numbers[0].item()  # waits for the GPU


print(json.dumps({"rank": rank, "round": this_round, "sum": all_reduce(), "host": os.environ.get("NCCL_HOSTID"),
                  "seconds": time.monotonic() - begin}), flush=True)
fate = sys.argv[1] if this_round == 0 and len(sys.argv) > 1 else "end"
if fate != "end" and rank == world - 1:
    if fate == "exit":
        os._exit(3)
    if fate == "memory":
        torch.empty(1 << 40, device=device)
    if fate == "assert":
        torch.zeros(4, device=device)[torch.tensor([9], device=device)]
        torch.cuda.synchronize()
    if fate == "sleep":
        time.sleep(3600)
if fate != "end":
    all_reduce()
dist.destroy_process_group()
