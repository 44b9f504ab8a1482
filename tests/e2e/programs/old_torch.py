"""PyTorch 1.13 against a store that serves its numbering: rank 0 and 1 of a gloo group, and each store operation it has.

Prints the results as one line of JSON."""
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

host, port, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = dist.TCPStore(host, port, None, False, timedelta(seconds=60))
seen = {"version": torch.__version__, "rank": rank}
if rank == 0:
    store.set("k", "value")
    seen["get"] = store.get("k").decode()
    seen["add"] = [store.add("n", 5), store.add("n", -7)]
    seen["keys"] = store.num_keys()
    seen["delete"] = [store.delete_key("k"), store.delete_key("k")]
    seen["cas"] = [store.compare_set("c", "", "a").decode(), store.compare_set("c", "a", "b").decode(),
                   store.compare_set("c", "x", "y").decode()]
    store.set("go", "1")
store.wait(["go"], timedelta(seconds=60))
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
value = torch.tensor([rank + 1.0])
dist.all_reduce(value)
seen["sum"] = value.item()
dist.barrier()
print(json.dumps(seen), flush=True)
os._exit(0)
