"""A worker in place of PyTorch with NCCL, which needs a GPU: it has the pipe of a flight recorder, and answers with a recorded dump.

In the dumps, ranks 0 and 1 wait in an all-reduce that rank 2 has not entered. Rank 2 sleeps, the others read their pipes. The rank that the
file SILENT names does not answer. With IMPOSSIBLE rank 2 has numbers that no dump of PyTorch has.
"""

import os
import pickle
import time

HERE = os.path.dirname(os.path.abspath(__file__))
rank = os.environ["RANK"]
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
os.mkfifo(pipe, 0o600)
fd = os.open(pipe, os.O_RDWR)  # stays open for the next request
print("ready", rank, flush=True)
silent = os.environ.get("SILENT")
entry = {"collective_seq_id": -1, "profiling_name": "nccl:all_reduce", "state": "started", "process_group": ("0", "default_pg"),
         "input_sizes": [[2**62, 2]], "input_dtypes": ["Byte"]}
while os.read(fd, 100):
    if silent and os.path.exists(silent):
        with open(silent, encoding="ascii") as f:
            if f.read() == rank:
                continue
    with open(f"{HERE}/../../data/flight/rank_{rank}", "rb") as f:
        recorded = f.read()
    if "IMPOSSIBLE" in os.environ and rank == "2":
        recorded = pickle.dumps({"version": "2.10", "entries": [entry]}, protocol=2)
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "wb") as f:
        f.write(recorded)
