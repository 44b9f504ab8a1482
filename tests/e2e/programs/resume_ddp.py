"""DistributedDataParallel with checkpoints: resumes from the last checkpoint, and ends once the file END exists.

    resume_ddp.py CHECKPOINT END
"""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(**what):
    sys.stdout.write(json.dumps({"rank": dist.get_rank(), "world": dist.get_world_size(),
                                 "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
                                 "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), **what}) + "\n")
    sys.stdout.flush()


def save(path, state):
    """Save so that a reader sees the old checkpoint or the new one, never a part of one."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main(checkpoint, end):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
        model.load_state_dict(state["model"])
    first = step
    while True:
        data = torch.randn(16, 8)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), data.sum(1, keepdim=True)).backward()
        optimizer.step()
        step += 1
        if rank == 0:
            save(checkpoint, {"step": step, "model": model.state_dict()})
        if step == first + 1:
            say(first=first)
        stop = torch.tensor([float(os.path.exists(end))])
        dist.all_reduce(stop)
        if stop.item() > 0:
            break
        time.sleep(0.02)  # several ranks share a CPU, and a test waits for something else meanwhile
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everybodys, weights)
    say(steps=step, equal=all(torch.equal(weights, other) for other in everybodys))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # see train_ddp.py


main(sys.argv[1], sys.argv[2])
