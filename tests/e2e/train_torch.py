"""A small training with PyTorch over gloo; see trainer.py for its options.

    train_torch.py [--ddp] [OPTION...]     --ddp: with DistributedDataParallel
"""

import os
import sys

import torch
import torch.distributed as dist

import trainer
from sgd import Model, equal_everywhere


def total(value, op=dist.ReduceOp.SUM):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, op)
    return tensor.item()


def main():
    args = trainer.options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # every rank has its own data
    data, wanted = torch.randn(64, 8), torch.randn(64, 1)
    model = Model(8, 0.05, args.ddp)
    for step in trainer.steps(args, lambda flag: total(flag, dist.ReduceOp.MAX) > 0):
        model.backward(data, wanted)
        equal = equal_everywhere(model.gradient())
        model.step()
        reduced = total(rank + 1)
        if step == 0:
            trainer.report(reduced, equal)
    dist.barrier()
    dist.destroy_process_group()
    # gloo's thread may free the barrier at any time; it aborts if the interpreter is already ending.
    # Src: core files of torch 2.13.0 under torchrun, 1 of 12 runs on busy CPUs.
    sys.stdout.flush()
    os._exit(0)


main()
