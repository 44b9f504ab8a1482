"""PyTorch and libddrun in one worker, at the same store: neither may see the other's keys. LIBDDRUN is the path of the library."""

import ctypes
import json
import os

import torch
import torch.distributed as dist

lib = ctypes.CDLL(os.environ["LIBDDRUN"])
lib.ddrun_error.restype = ctypes.c_char_p
handle = ctypes.c_void_p()
LIMIT_MS = 60000


def check(rc):
    assert rc >= 0, lib.ddrun_error().decode()


check(lib.ddrun_init(ctypes.byref(handle), LIMIT_MS))
check(lib.ddrun_put(handle, b"shared", b"of libddrun", ctypes.c_size_t(11), LIMIT_MS))
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
store.set("shared", "of torch")
rank = dist.get_rank()
told = (ctypes.c_int * dist.get_world_size())()
mine = ctypes.c_int(rank + 1)
for _ in range(20):
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    check(lib.ddrun_allgather(handle, None, ctypes.byref(mine), ctypes.c_size_t(4), told, LIMIT_MS))
    dist.barrier()
value, length = ctypes.c_void_p(), ctypes.c_size_t()
check(lib.ddrun_get(handle, b"shared", ctypes.byref(value), ctypes.byref(length), LIMIT_MS))
line = {"rank": rank, "total": total.item(), "told": sum(told), "torch": store.get("shared").decode(),
        "lib": ctypes.string_at(value, length.value).decode()}
os.write(1, (json.dumps(line) + "\n").encode())
check(lib.ddrun_barrier(handle, None, LIMIT_MS))
dist.destroy_process_group()
os._exit(0)  # see train_torch.py
