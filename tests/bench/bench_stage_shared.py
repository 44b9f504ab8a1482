#!/usr/bin/env python3
"""A job that imports many modules from a slow shared file system, with --stage and without it.

Each simulated node has a mount of its own (tests/bench/slowfs.c), as a client of a file server has its own cache: each stat and each
open takes 1 ms, and is counted; the server itself is never busy. The tree has packages of 25 modules with their .pyc files; the job of each
node imports half of the packages, as import torch opens part of an environment. Needs root, /dev/fuse, cc, and libfuse3-dev.

    tests/bench/bench_stage_shared.py [--modules 1500] [--nodes 1,2,8,32] [--runs 3]
"""

import argparse
import compileall
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
EACH = 25  # modules of a package

# Simulated nodes share a kernel, so each has a mount for itself; with --stage, all use the path of the first one.
TRAIN = """
import importlib, os, sys
top, modules, staged = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "staged"
sys.path.insert(0, os.path.join(top, "0" if staged else os.environ["GROUP_RANK"]))
for i in range(0, modules, 2 * EACH):
    for k in range(EACH):
        importlib.import_module(f"package{i // EACH}.module{k}")
""".replace("EACH", str(EACH))


def fill(top, modules):
    for i in range(modules):
        where = os.path.join(top, f"package{i // EACH}")
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, f"module{i % EACH}.py"), "w", encoding="ascii") as f:
            f.write("".join(f"value_{k} = {i * k}\n" for k in range(50 + i % 400)))
        if i % EACH == 0:
            with open(os.path.join(where, "__init__.py"), "w", encoding="ascii"):
                pass
    compileall.compile_dir(top, quiet=2)


class Mounts:
    """One cold mount of the source for each node."""

    def __init__(self, program, source, work, nodes):
        self.top = tempfile.mkdtemp(dir=work)
        self.counts = os.path.join(self.top, "counts")
        self.processes = []
        for i in range(nodes):
            place = os.path.join(self.top, str(i))
            os.mkdir(place)
            self.processes.append(subprocess.Popen([program, source, self.counts, place], stderr=subprocess.DEVNULL))
        for i in range(nodes):
            end = time.monotonic() + 60
            while not os.path.ismount(os.path.join(self.top, str(i))):
                if time.monotonic() > end:
                    raise TimeoutError("slowfs has mounted nothing")
                time.sleep(0.01)
        self.before = self.operations()

    def operations(self):
        with open(self.counts, "rb") as f:
            return sum(struct.unpack("QQ", f.read(16)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for i, p in enumerate(self.processes):
            subprocess.run(["umount", os.path.join(self.top, str(i))], check=True)
            p.wait()
        shutil.rmtree(self.top)


def job(mounts, nodes, modules, train, *options):
    began = time.monotonic()
    done = subprocess.run([DDRUN, "--no-config", f"--simulate-nodes={nodes}", "--nproc-per-node=1", "--log-level=info", *options,
                           sys.executable, "-B", train, mounts.top, str(modules), "staged" if options else "direct"],
                          capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    if done.returncode != 0:
        sys.exit(done.stderr)
    copies = [float(s) for s in re.findall(r"staged .* MiB in ([0-9.]+) s", done.stderr)]
    return time.monotonic() - began, mounts.operations() - mounts.before, max(copies, default=0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--modules", type=int, default=1500)
    p.add_argument("--nodes", default="1,2,8,32")
    p.add_argument("--runs", type=int, default=3)
    a = p.parse_args()
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)
    if flags.returncode != 0 or not os.path.exists("/dev/fuse") or os.geteuid() != 0:
        sys.exit("needs root, /dev/fuse and libfuse3-dev")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        program, source, train = (os.path.join(work, n) for n in ("slowfs", "source", "train.py"))
        subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", os.path.join(HERE, "slowfs.c"), *flags.stdout.split(), "-o", program], check=True)
        fill(source, a.modules)
        with open(train, "w", encoding="ascii") as f:
            f.write(TRAIN)
        print(f"{'nodes':>6} {'operations: direct':>19} {'--stage':>9} {'job s: direct':>14} {'--stage':>9} {'copies s':>9}")
        for nodes in map(int, a.nodes.split(",")):
            runs = []
            for _ in range(a.runs):
                with Mounts(program, source, work, nodes) as mounts:
                    direct = job(mounts, nodes, a.modules, train)
                with Mounts(program, source, work, 1) as mounts:
                    staged = job(mounts, nodes, a.modules, train, f"--stage={mounts.top}/0", "--stage-dir=/dev/shm")
                runs.append((direct[1], staged[1], direct[0], staged[0], staged[2]))
            m = [statistics.median(r[i] for r in runs) for i in range(5)]
            print(f"{nodes:>6} {m[0]:>19.0f} {m[1]:>9.0f} {m[2]:>14.2f} {m[3]:>9.2f} {m[4]:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
