"""timed_out.py PLACE HOW: rank 2 of 4 waits in another collective than the others, until the timeout of the collective ends rank 0.
With HOW "ending", it has ended the Python of rank 1 before, but not the process. PLACE has a module in the place of PyTorch's own:
which rank fails first is then certain."""
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(sys.argv[1], "site-packages/torch/distributed"))
import distributed_c10d as dist  # noqa: E402  pylint: disable=import-error,wrong-import-position


def main():
    place, ending, rank = sys.argv[1], sys.argv[2] == "ending", int(os.environ["RANK"])
    if rank == 1 and ending:
        ctypes.CDLL(os.path.join(place, "held_exit.so")).hold_exit()
    if rank == 2:
        dist.all_gather(place, rank, None)
    all_in = [f"in.{r}" for r in range(4)]
    fails_after = all_in + ["held"] * ending if rank == 0 else all_in if rank == 1 and ending else None
    dist.all_reduce(place, rank, fails_after)


main()
