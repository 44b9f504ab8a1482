"""A training with PyTorch and checkpoints: resumes from the last checkpoint, and ends once the file END exists.

    resume_torch.py CHECKPOINT END [--ddp]     --ddp: with DistributedDataParallel
"""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from sgd import Model, equal_everywhere


def say(**what):
    sys.stdout.write(json.dumps({"rank": dist.get_rank(), "world": dist.get_world_size(),
                                 "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
                                 "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), **what}) + "\n")
    sys.stdout.flush()


def save(path, state):
    """Save so that a reader sees the old checkpoint or the new one, never a part of one."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main(checkpoint, end, *ddp):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = Model(8, 0.01, bool(ddp))
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
        model.module.load_state_dict(state["model"])
    first = step
    while True:
        data = torch.randn(16, 8)
        model.backward(data, data.sum(1, keepdim=True))
        model.step()
        step += 1
        if rank == 0:
            save(checkpoint, {"step": step, "model": model.module.state_dict()})
        if step == first + 1:
            say(first=first)
        stop = torch.tensor([float(os.path.exists(end))])
        dist.all_reduce(stop)
        if stop.item() > 0:
            break
        time.sleep(0.02)  # several ranks share a CPU, and a test waits for something else meanwhile
    say(steps=step, equal=equal_everywhere(model.weights()))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # see train_torch.py


main(*sys.argv[1:])
