"""Serves torch's own TCPStore on a free port, and another one for each line of its standard input, until it is ended."""

import signal
import sys

import torch.distributed as dist


def serve():
    stores.append(dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False))
    print(f"torch: listening on 127.0.0.1:{stores[-1].port}", flush=True)


stores = []
serve()
for _ in sys.stdin:
    serve()
signal.pause()  # SIGTERM ends it
