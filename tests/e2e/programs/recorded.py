"""recorded.py FAIL DELAY: under PyTorch's decorator, rank 0 exits with 0, rank FAIL raises after DELAY seconds, the others
stay."""

import os
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    rank = int(os.environ["RANK"])
    if rank == 0:
        return
    if rank == int(sys.argv[1]):
        time.sleep(float(sys.argv[2]))
        raise ValueError("boom of rank %d\nsecond line" % rank)
    time.sleep(600)


main()
