"""Serves torch's own TCPStore on a free port, until it is ended."""

import signal
import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv="legacy" not in sys.argv)
print(f"torch: listening on 127.0.0.1:{store.port}", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
