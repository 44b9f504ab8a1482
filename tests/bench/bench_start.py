#!/usr/bin/env python3
"""Start latency: from the command to the first instruction of the last of four workers, and to the command's end.

Every launcher that is installed is run in turns, so that the machine's drift hits all alike; medians are printed, and the
ratio to ddrun. Agent memory is the private memory of ddrun, and of torchrun, while workers run.

    tests/bench/bench_start.py [--runs 15] [--workers 4] [--json FILE]
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build")))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
STAMP = os.path.join(BUILD, "tests", "bench", "stamp")


def launchers(workers):
    """name -> (command line, or None with why it cannot be run here)"""
    ddrun = os.path.join(BUILD, "ddrun")
    rows = {
        "ddrun": [ddrun, f"--nproc-per-node={workers}", STAMP],
        "ddrun, 2 simulated nodes": [ddrun, "--simulate-nodes=2", f"--nproc-per-node={workers // 2}", STAMP],
        "MPICH Hydra": ["mpirun.mpich", "-np", str(workers), STAMP],
        "Open MPI mpirun": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(workers), STAMP],
        "torchrun": [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "--no-python", STAMP],
    }
    have_torch = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    return {name: cmd for name, cmd in rows.items()
            if shutil.which(cmd[0]) and (name != "torchrun" or have_torch)}


def once(cmd, workers):
    with tempfile.NamedTemporaryFile("r", prefix="stamp") as f:
        env = dict(os.environ, STAMP=f.name)
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        rc = subprocess.run(cmd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        stamps = [int(line) for line in f.read().split()]
    if rc.returncode != 0 or len(stamps) != workers:
        raise SystemExit(f"{cmd[0]}: exit code {rc.returncode}, {len(stamps)} workers\n{rc.stderr.decode()[-2000:]}")
    return (max(stamps) - start) / 1e6, (end - start) / 1e6


def private_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(c) for c in f.read().split()]


def memory(cmd, depth):
    """Private memory in KiB of the launcher's processes while its workers wait."""
    p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p.stdout.readline()
    pids = [p.pid]
    for _ in range(depth):
        pids += [c for parent in list(pids) for c in children(parent) if c not in pids]
    names = {}
    for pid in pids:
        with open(f"/proc/{pid}/comm") as f:
            names.setdefault(f.read().strip(), []).append(private_kib(pid))
    p.send_signal(signal.SIGTERM)
    p.communicate()
    return names


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=15)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--json")
    args = ap.parse_args()
    cmds = launchers(args.workers)
    times = {name: [] for name in cmds}
    for i in range(args.runs + 1):
        for name, cmd in cmds.items():
            if name == "torchrun" and i > max(3, args.runs // 3):
                continue
            t = once(cmd, args.workers)
            if i > 0:  # the first round warms the caches
                times[name].append(t)
    med = {n: [statistics.median(x[k] for x in t) for k in (0, 1)] for n, t in times.items()}
    base = med["ddrun"]
    print(f"{'launcher':26} {'last worker, ms':>16} {'min-max':>16} {'ratio':>7} {'whole run, ms':>14} {'ratio':>7}")
    for name, t in times.items():
        first = [x[0] for x in t]
        print(f"{name:26} {med[name][0]:16.1f} {min(first):7.1f}-{max(first):<8.1f} {med[name][0] / base[0]:7.1f} "
              f"{med[name][1]:14.1f} {med[name][1] / base[1]:7.1f}")
    wait = ["sh", "-c", "echo here; sleep 60"]
    mem = memory([os.path.join(BUILD, "ddrun"), "--nproc-per-node=1", *wait], 1)
    print("private memory, KiB: " + ", ".join(f"{n} {'+'.join(map(str, v))}" for n, v in mem.items() if n.startswith("ddrun")))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"start_ms": times, "memory_kib": mem}, f)


if __name__ == "__main__":
    main()
