#!/usr/bin/env python3
"""How long recovery takes: from a worker's death to the start of the last worker of the next round, and from an agent's death to
the moment when the workers of all other nodes are told to stop. And how far apart the workers of 4 nodes hear a signal.

Two nodes with two workers each; ddrun with simulated nodes, torchrun with two agents on loopback addresses (c10d). The workers
do nothing, so that the launchers alone are measured.

    tests/bench/bench_recovery.py [--runs 10] [--torchrun-runs 3] [--limit 30]
"""

import argparse
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
WORKER = os.path.join(BUILD, "tests", "bench", "rounds")


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def commands(kind, victim):
    more = ["--nnodes=1:2"] if victim == "agent" else ["--nnodes=2"]
    if kind == "ddrun":
        return [[os.path.join(BUILD, "ddrun"), "--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", *more, WORKER]]
    port = free_port()
    return [[PYTHON, "-m", "torch.distributed.run", "--max-restarts=1", "--nproc-per-node=2", "--rdzv-backend=c10d", *more,
             f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench", f"--local-addr=127.0.0.{i}", "--no-python", WORKER] for i in (2, 3)]


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


class Run:
    def __init__(self, argvs, limit):
        self.limit = limit
        self.file = tempfile.NamedTemporaryFile("r", prefix="rounds")
        env = dict(os.environ, STAMP=self.file.name)
        self.agents = [subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL) for argv in argvs]

    def said(self, what):
        """(time, rank, pid) of each that said so"""
        self.file.seek(0)
        lines = [line.split() for line in self.file if line.endswith("\n")]
        return [(int(at), int(rank), int(pid)) for word, at, rank, pid in lines if word == what]

    def wait(self, what, count):
        """None when it has not come within the limit."""
        end = time.monotonic() + self.limit
        while len(self.said(what)) < count:
            if time.monotonic() > end:
                return None
            time.sleep(0.002)
        return self.said(what)

    def end(self):
        for p in self.agents:
            p.send_signal(signal.SIGTERM)
        for p in self.agents:
            try:
                p.wait(timeout=20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for _, _, pid in self.said("begin"):  # torchrun leaves some
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.file.close()


def once(kind, victim, limit):
    run = Run(commands(kind, victim), limit)
    try:
        begun = run.wait("begin", 4)
        if begun is None:
            raise SystemExit(f"{kind}: the workers did not start within {limit} s")
        rank3 = [pid for _, rank, pid in begun if rank == 3][0]
        at = now()
        if victim == "worker":
            os.kill(rank3, signal.SIGKILL)
            seen = run.wait("begin", 8)
        else:
            os.kill(parent(rank3), signal.SIGKILL)
            seen = run.wait("stop", 2)
        return None if seen is None else (max(t for t, _, _ in seen) - at) / 1e6
    finally:
        run.end()


def spread(sig, limit):
    run = Run([[os.path.join(BUILD, "ddrun"), "--simulate-nodes=4", "--nproc-per-node=2", WORKER]], limit)
    try:
        begun = run.wait("begin", 8)
        os.kill(parent(begun[-1][2]), sig)
        heard = run.wait("usr1" if sig == signal.SIGUSR1 else "stop", 8)
        if heard is None:
            raise SystemExit(f"{sig.name} was not heard within {limit} s")
        times = [t for t, _, _ in heard]
        return (max(times) - min(times)) / 1e6
    finally:
        run.end()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=10)
    ap.add_argument("--torchrun-runs", type=int, default=3)
    ap.add_argument("--limit", type=float, default=30)
    args = ap.parse_args()
    kinds = {"ddrun": args.runs}
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        kinds["torchrun"] = args.torchrun_runs
    spreads = {name: [spread(sig, args.limit) for _ in range(args.runs)] for name, sig in (("SIGUSR1", signal.SIGUSR1), ("SIGTERM", signal.SIGTERM))}
    print(f"{'':10} {'killed':8} {'median, ms':>11} {'min-max, ms':>17} {'never':>6}")
    for victim in ("worker", "agent"):
        for kind, runs in kinds.items():
            seen = [once(kind, victim, args.limit) for _ in range(runs)]
            good = [s for s in seen if s is not None]
            text = f"{statistics.median(good):11.1f} {min(good):8.1f}-{max(good):<8.1f}" if good else f"{'-':>11} {'':17}"
            print(f"{kind:10} {victim:8} {text} {f'{runs - len(good)}/{runs}':>6}", flush=True)
    for name, seen in spreads.items():
        print(f"{name} to one agent, first to last of 8 workers on 4 simulated nodes: median {statistics.median(seen):.1f} ms, "
              f"most {max(seen):.1f} ms")


if __name__ == "__main__":
    main()
