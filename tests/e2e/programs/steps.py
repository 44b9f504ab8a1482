"""A training loop with marked steps: steps.py HOW DIR [STEPS].

Node rank 1 takes ten times as long in a step as the others while DIR/slow exists. HOW: "marked" (the waits are marked), "sleeps" and
"computes" (they are not: a rank sleeps, or uses the processor), "gloo" (marked, with an all_reduce of PyTorch). Ends after STEPS
steps, or when DIR/end exists, with exit code 3 on rank 0 if DIR/fail exists.
"""

import os
import sys
import time

import ddrun

how, folder = sys.argv[1], sys.argv[2]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else sys.maxsize


def exists(name):
    return os.path.exists(os.path.join(folder, name))


worker = ddrun.init()
if how == "gloo":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    flag = torch.zeros(1)
number = 0
over = False
while not over and number < steps:
    ddrun.step()
    if number == 0:
        print("ready", os.environ["TORCHELASTIC_RUN_ID"], worker.rank, worker.restarts, flush=True)
    number += 1
    mine = 0.02 * (10 if worker.node_rank == 1 and exists("slow") else 1)
    if how == "computes":
        end = time.process_time() + mine
        while time.process_time() < end:
            pass
    else:
        time.sleep(mine)
    if how in ("marked", "gloo"):
        ddrun.step_wait()
    if how == "gloo":
        flag[0] = exists("end")
        dist.all_reduce(flag)
        over = flag[0] > 0
    else:
        over = any(worker.allgather(b"x" if exists("end") else b""))
code = 3 if worker.rank == 0 and exists("fail") else 0
if how == "gloo":
    dist.destroy_process_group()
    os._exit(code)  # see train_torch.py
sys.exit(code)
