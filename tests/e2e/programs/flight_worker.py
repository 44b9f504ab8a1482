"""A worker in place of PyTorch with NCCL, which needs a GPU: it has the pipe of a flight recorder, and answers with a recorded dump.

In the dumps, ranks 0 and 1 wait in an all-reduce that rank 2 has not entered. Rank 2 sleeps, the others read their pipes.
"""

import os
import time

HERE = os.path.dirname(os.path.abspath(__file__))
rank = os.environ["RANK"]
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
os.mkfifo(pipe, 0o600)
fd = os.open(pipe, os.O_RDWR)  # stays open for the next request
print("ready", rank, flush=True)
while os.read(fd, 100):
    with open(f"{HERE}/../../data/flight/rank_{rank}", "rb") as f:
        recorded = f.read()
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "wb") as f:
        f.write(recorded)
