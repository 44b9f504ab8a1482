"""A gloo group whose rank 1 dies in the first attempt, once the group is set up; the next attempt must not read its keys."""
import json
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.tensor([float(rank)])
dist.all_reduce(value)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 1:
        os._exit(5)
    dist.all_reduce(value)  # fails, or waits to be stopped
else:
    sys.stdout.write(json.dumps({"rank": rank, "sum": value.item()}) + "\n")
    sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
