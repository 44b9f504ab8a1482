"""Communicators made from groups of ranks, without the world: MPI 4's sessions, which Open MPI forms by PMIx groups."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
everybody = world.Get_group()


def among(ranks, tag):
    """Return the sum over the ranks of a communicator of these ranks alone."""
    if rank not in ranks:
        return "-"
    comm = MPI.Intracomm.Create_from_group(everybody.Incl(ranks), tag)
    total = comm.allreduce(rank)
    comm.Free()
    return str(total)


said = [among(list(range(size)), "all"), among([0, size - 1], "ends"), among([0], "first"),
        among(list(range(1, size)), "others"), among([0, size - 1], "ends")]

halves = [list(range(size // 2)), list(range(size // 2, size))]
mine = rank >= size // 2
between = MPI.Intercomm.Create_from_groups(everybody.Incl(halves[mine]), 0, everybody.Incl(halves[not mine]), 0)
said.append(str(between.allreduce(rank)))  # of the other half
between.Free()
os.write(1, f"rank {rank}: {' '.join(said)}\n".encode())
