#!/usr/bin/env python3
"""Restarts that work: a gloo job whose rank 1 dies in its first attempt has one restart to finish. How often does it?

torchrun is run beside ddrun, in turns, as it comes and with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. With 2 nodes there are two
torchrun agents on loopback addresses, and two simulated nodes of ddrun; one worker each.

    tests/bench/bench_restart.py [--runs 3] [--torchrun-runs N] [--nodes 1] [--limit 60] [--json FILE]
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
WORKER = os.path.join(HERE, "restart_worker.py")
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--max-restarts=1"]
DISABLE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def commands(kind, nodes):
    """The agents of one job."""
    if kind == "ddrun":
        where = [f"--simulate-nodes={nodes}", "--nproc-per-node=1"] if nodes > 1 else ["--nproc-per-node=2"]
        return [[os.path.join(BUILD, "ddrun"), "--max-restarts=1", "--shutdown-timeout=30", *where, WORKER]]
    if nodes == 1:
        return [[*TORCHRUN, "--standalone", "--nproc-per-node=2", WORKER]]
    port = free_port()
    return [[*TORCHRUN, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench",
             f"--local-addr=127.0.0.{i}", WORKER] for i in (2, 3)]


def end_all(agents, mark):
    """torchrun leaves workers behind when it is killed."""
    for p in agents:
        p.kill()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                mine = mark.encode() in f.read()
            if mine:
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
    for p in agents:
        p.wait()


def once(kind, nodes, env, limit):
    """("finished" | "failed" | "hung", seconds, ms from the death to the last start of the next attempt or None)"""
    with tempfile.TemporaryDirectory(prefix="restart") as folder:
        stamps = os.path.join(folder, "stamps")
        env = dict(os.environ, STAMPS=stamps, TMPDIR=folder, OMP_NUM_THREADS="1", PYTHON_EXEC=PYTHON, **env)
        began = time.monotonic()
        agents = [subprocess.Popen(cmd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for cmd in commands(kind, nodes)]
        try:
            codes = [p.wait(timeout=max(0.1, began + limit - time.monotonic())) for p in agents]
            result = "failed" if any(codes) else "finished"
        except subprocess.TimeoutExpired:
            result = "hung"
        took = time.monotonic() - began
        end_all(agents, f"STAMPS={stamps}")
        with open(stamps, encoding="ascii") as f:
            lines = [line.split() for line in f]
    died = [int(ns) for what, _, _, ns in lines if what == "died"]
    again = [int(ns) for what, _, _, ns in lines if what == "began" and died and int(ns) > died[0]][:2]
    if result == "finished" and sum(what == "finished" for what, *_ in lines) != 2:
        result = "failed"
    return result, took, (max(again) - died[0]) / 1e6 if len(again) == 2 else None


def middle(values, form):
    return form.format(statistics.median(values)) if values else "-"


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--torchrun-runs", type=int, default=None, help="default: as many")
    ap.add_argument("--nodes", type=int, default=1, choices=(1, 2))
    ap.add_argument("--limit", type=float, default=60, help="seconds after which a run counts as hung")
    ap.add_argument("--json")
    args = ap.parse_args()
    theirs = args.runs if args.torchrun_runs is None else args.torchrun_runs
    rows = {"ddrun": ("ddrun", {}, args.runs), "torchrun": ("torchrun", {}, theirs),
            "torchrun, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1": ("torchrun", DISABLE, theirs)}
    results = {name: [] for name in rows}
    for turn in range(max(args.runs, theirs)):
        for name, (kind, env, runs) in rows.items():
            if turn < runs:
                results[name].append(once(kind, args.nodes, env, args.limit))
    print(f"{args.nodes} node{'s' * (args.nodes > 1)}, 2 workers, rank 1 dies once; limit {args.limit:.0f} s")
    print("| launcher | runs | finished after one restart | failed | hung | death to all workers started again, ms | whole run, s |")
    print("|---|---|---|---|---|---|---|")
    for name, done in results.items():
        n = {r: sum(d[0] == r for d in done) for r in ("finished", "failed", "hung")}
        print(f"| {name} | {len(done)} | {n['finished']} | {n['failed']} | {n['hung']} | "
              f"{middle([d[2] for d in done if d[2] is not None], '{:.0f}')} | {middle([d[1] for d in done if d[0] == 'finished'], '{:.1f}')} |")
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump(results, f, indent=1)
    return 0 if all(d[0] == "finished" for d in results["ddrun"]) else 1


if __name__ == "__main__":
    sys.exit(main())
