"""A worker in place of one that uses CUDA: like CUDA's driver, it makes the named pipe of CUDA_COREDUMP_PIPE, and writes
CUDA_COREDUMP_FILE when something is written to the pipe. %p in both names is the PID.

cuda_core_worker.py HOW: `dumps`; `slow` pauses in the middle of the dump, `endless` does not go on; in `dies`, a child has the
pipe, and ends in the middle of the dump; `link` has a symbolic link in place of the pipe, and `file` a regular file."""

import os
import sys
import time

how = sys.argv[1]
if how == "dies" and os.fork() != 0:
    while True:
        time.sleep(1000)  # and the child remains a zombie
pid = str(os.getpid())
pipe = os.environ["CUDA_COREDUMP_PIPE"].replace("%p", pid)
core = os.environ["CUDA_COREDUMP_FILE"].replace("%p", pid)
assert os.environ["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] == "1" and "skip_abort" in os.environ["CUDA_COREDUMP_GENERATION_FLAGS"]
if how == "link":
    os.symlink("/dev/null", pipe)
elif how == "file":
    with open(pipe, "wb"):
        pass
else:
    os.mkfifo(pipe, 0o600)
    fd = os.open(pipe, os.O_RDWR)
print("ready", flush=True)
if how in ("link", "file"):
    time.sleep(1000)
os.read(fd, 1)
with open(core, "wb") as f:
    f.write(b"\x7fELF")
    f.flush()
    if how == "slow":
        time.sleep(1.5)  # a dump that is open is not complete, however long nothing is written
    if how == "endless":
        time.sleep(1000)
    if how == "dies":
        os._exit(0)
    f.write(b"end\n")
while True:
    time.sleep(1000)
