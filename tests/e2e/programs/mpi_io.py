"""An I/O benchmark under mpi4py: all ranks write one file together, then each reads what its neighbour has written.

mpi_io.py FILE MIB_PER_RANK
"""

import os
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
path, size = sys.argv[1], int(sys.argv[2]) << 20
BLOCK = 256 << 10


def block(rank, i):
    """Differs from rank to rank and from block to block."""
    return bytes([rank, i % 256]) * (BLOCK // 2)


def timed(what):
    world.Barrier()
    start = time.monotonic()
    what()
    world.Barrier()
    return time.monotonic() - start


def write():
    for i in range(size // BLOCK):  # blocks of all ranks alternate in the file
        file.Write_at_all((i * world.size + world.rank) * BLOCK, block(world.rank, i))
    file.Sync()


def read():
    neighbour = (world.rank + 1) % world.size
    buffer = bytearray(BLOCK)
    for i in range(size // BLOCK):
        file.Read_at_all((i * world.size + neighbour) * BLOCK, buffer)
        assert buffer == block(neighbour, i), f"block {i} of rank {neighbour} is wrong"


file = MPI.File.Open(world, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
seconds = [timed(write), timed(read)]
file.Close()
all_bytes = world.reduce(size)
if world.rank == 0:
    rates = [all_bytes / s / (1 << 20) for s in seconds]
    os.write(1, f"{world.size} ranks, {all_bytes >> 20} MiB: wrote {rates[0]:.0f} MiB/s, read {rates[1]:.0f} MiB/s\n".encode())
