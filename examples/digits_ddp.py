#!/usr/bin/env python3
"""Data-parallel training on real data: 1,797 handwritten digits, 8x8 pixels each.

    ddrun --nproc-per-node=2 examples/digits_ddp.py
    ddrun --simulate-nodes=2 --nproc-per-node=2 examples/digits_ddp.py
    srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 ddrun --nproc-per-node=2 examples/digits_ddp.py

Needs torch and numpy, and the data file that comes with scikit-learn (pip install --no-deps
scikit-learn); scikit-learn itself is not imported.
"""
import argparse
import gzip
import importlib.util
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load_digits():
    """Images as float in 0..1, and labels, in the order of the file."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the digits come with scikit-learn; get them with: pip install --no-deps scikit-learn")
    path = os.path.join(spec.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with gzip.open(path, "rt") as f:
        table = np.loadtxt(f, delimiter=",", dtype=np.float32)
    return torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1].astype(np.int64))


def split(n, rank, world, seed, held_out):
    """Indices of this rank's share of the training data, and of its share of the test data."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    test, train = order[:held_out], order[held_out:]
    train = train[:len(train) // world * world]  # every rank takes the same number of steps
    return train[rank::world], test[rank::world]


def train_epoch(model, optimizer, images, labels, batch, generator):
    loss_of = torch.nn.CrossEntropyLoss()
    order = torch.randperm(len(images), generator=generator)
    total = torch.zeros(())
    for part in order.split(batch):
        optimizer.zero_grad()
        loss = loss_of(model(images[part]), labels[part])
        loss.backward()  # averages the gradients over all ranks
        optimizer.step()
        total += loss.detach() * len(part)
    return total


def accuracy(model, images, labels):
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum()
    counts = torch.tensor([right.item(), len(images)], dtype=torch.int64)
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32, help="images per step and rank")
    parser.add_argument("--test", type=int, default=360, help="images held out for the test")
    return parser.parse_args()


def main():
    args = arguments()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    images, labels = load_digits()
    mine, my_test = split(len(images), rank, world, 3, args.test)

    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(rank)
    if rank == 0:
        print(f"{world} ranks, {len(mine)} images each, {args.test} for the test", flush=True)

    start = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        total = train_epoch(model, optimizer, images[mine], labels[mine], args.batch, generator)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch:2}  loss {total.item() / (len(mine) * world):.4f}", flush=True)
    score = accuracy(model.module, images[my_test], labels[my_test])
    if rank == 0:
        print(f"test accuracy {score:.3f} after {time.monotonic() - start:.1f} s", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # while Python exits normally, a thread of gloo may abort the process (PyTorch 2.13)


if __name__ == "__main__":
    main()
