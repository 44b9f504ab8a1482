#!/usr/bin/env python3
"""--warm: time to the first all-reduce and after a restart, and the memory of workers, against ddrun and torchrun without it.

Each row: from the command to the end of the first all-reduce of the last of 4 gloo ranks; from the death of a rank to the same in the
next attempt; the medians of the runs, which the programs take in turns. Then the private memory of 8 workers that have imported torch.

    tests/bench/bench_warm.py [--runs 5] [--ranks 4] [--workers 8] [--json FILE]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
DDRUN = os.path.join(BUILD, "ddrun")
WORKER = os.path.join(HERE, "warm_worker.py")


def commands(ranks):
    options = [f"--nproc-per-node={ranks}", "--max-restarts=1"]
    return {
        "ddrun --warm": [DDRUN, "--warm", *options, WORKER],
        "ddrun": [DDRUN, *options, WORKER],
        "torchrun": [PYTHON, "-m", "torch.distributed.run", "--standalone", *options, WORKER],
    }


def stamps(path):
    with open(path, encoding="ascii") as f:
        return [(what, int(attempt), int(ns) / 1e9) for what, attempt, ns in map(str.split, f)]


def once(command, env):
    """Return (seconds to the first all-reduce, seconds from the death to the first all-reduce of the next attempt)."""
    with tempfile.TemporaryDirectory(prefix="warm") as place:
        path = os.path.join(place, "stamps")
        began = time.monotonic()
        p = subprocess.run(command, env=dict(env, STAMPS=path), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, check=False)
        seen = stamps(path)
        if p.returncode != 0:
            sys.exit(f"{command}: {p.stderr[-2000:]}")
    died = next(at for what, _, at in seen if what == "died")
    ends = [max(at for what, n, at in seen if what == "reduced" and n == attempt) for attempt in (0, 1)]
    return ends[0] - began, ends[1] - died


def private_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty")))


def memory(command, workers, env):
    """Return the private memory of all workers in MiB, while they wait after the import."""
    p = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pids = [int(p.stdout.readline().split()[1]) for _ in range(workers)]
    total = sum(map(private_kib, pids)) / 1024
    p.send_signal(signal.SIGTERM)
    p.communicate()
    return total


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--ranks", type=int, default=4)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--json")
    args = ap.parse_args()
    rows = commands(args.ranks)
    with tempfile.TemporaryDirectory(prefix="warm-cache") as cache:
        env = dict(os.environ, PYTHON_EXEC=PYTHON, XDG_CACHE_HOME=cache, DDRUN_HEARTBEAT="30s",
                   TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")  # without it torchrun's restart fails at times (bench_restart.py)
        results = {name: [] for name in rows}
        for _ in range(args.runs):
            for name, command in rows.items():
                results[name].append(once(command, env))
        idle = [f"--nproc-per-node={args.workers}", "--bind=none", os.path.join(HERE, "warm_idle.py")]
        used = {name: memory([DDRUN, *more, *idle], args.workers, env) for name, more in (("ddrun --warm", ["--warm=torch"]), ("ddrun", []))}
    best = [statistics.median(r[i] for r in results["torchrun"]) for i in (0, 1)]
    print(f"{args.ranks} gloo ranks, {args.runs} runs in turns, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print("| | to the first all-reduce, s | torchrun takes | after a restart, s | torchrun takes |")
    print("|---|---|---|---|---|")
    for name, runs in results.items():
        first, again = (statistics.median(r[i] for r in runs) for i in (0, 1))
        spread = [f"{min(r[i] for r in runs):.2f}-{max(r[i] for r in runs):.2f}" for i in (0, 1)]
        print(f"| {name} | {first:.2f} ({spread[0]}) | {best[0] / first:.1f} x | {again:.2f} ({spread[1]}) | {best[1] / again:.1f} x |")
    print(f"\nprivate memory of {args.workers} workers after import torch, MiB: " +
          ", ".join(f"{name} {value:.0f}" for name, value in used.items()) + f" (ratio {used['ddrun --warm'] / used['ddrun']:.3f})")
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump({"times": results, "memory_mib": used}, f, indent=1)


if __name__ == "__main__":
    main()
