#!/usr/bin/env python3
"""Horovod's rendezvous: the servers of ddrun's nodes beside the one Python server of horovodrun, in one run, in turns.

    tests/bench/bench_horovod.py [--rounds 3] [--ranks 64,256]

The ranks are C programs (hvdbench) that ask as Horovod's own client does, on 4 simulated nodes of this machine; with both servers
ddrun starts them. The time is from the first rank's start to the last one's end. Horovod's server is
taken from the Horovod that contrib/horovod has built.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
BUILDER = os.path.join(HERE, "..", "..", "contrib", "horovod")
NODES = 4
LIMIT = 600  # seconds; only to end a hang

SERVER = """
import sys
from types import SimpleNamespace as Slot
from horovod.runner.http.http_server import RendezvousServer
n, nodes = int(sys.argv[1]), int(sys.argv[2])
each = n // nodes
server = RendezvousServer()
print(server.start(), flush=True)
server.init([Slot(size=n, hostname=f"sim{r // each + 1}", local_rank=r % each, local_size=each, cross_size=nodes) for r in range(n)])
sys.stdin.read()
"""


def site():
    found = subprocess.run([BUILDER, "--have", PYTHON], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        sys.exit(f"Horovod has not been built: {BUILDER} {PYTHON}")
    return found.stdout.strip()


def run(ranks, *options):
    """Seconds, requests, and tries that failed."""
    out = subprocess.run([os.path.join(BUILD, "ddrun"), f"--simulate-nodes={NODES}", f"--nproc-per-node={ranks // NODES}",
                          "--bind=none", *options, os.path.join(BUILD, "tests/bench/hvdbench")],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
    lines = [list(map(int, line.split())) for line in out.stdout.splitlines()]
    if out.returncode != 0 or len(lines) != ranks:
        return None, out.stderr.strip().splitlines()[:1]
    seconds = (max(line[1] for line in lines) - min(line[0] for line in lines)) / 1e9
    return seconds, (sum(line[2] for line in lines), sum(line[3] for line in lines))


def theirs(ranks, where):
    with subprocess.Popen([PYTHON, "-c", SERVER, str(ranks), str(NODES)], env={**os.environ, "PYTHONPATH": where},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().strip()
        try:
            return run(ranks, f"--env=all:HOROVOD_GLOO_RENDEZVOUS_PORT={port}")
        finally:
            server.kill()


def row(runs):
    good = sorted(r for r in runs if r[0] is not None)
    bad = [why for seconds, why in runs if seconds is None]
    if not good:
        return f"- | | | | {len(bad)}: {' '.join(bad[0])}"
    seconds = [r[0] for r in good]
    return (f"{statistics.median(seconds):.2f} | {seconds[0]:.2f}-{seconds[-1]:.2f} | {good[0][1][0]:,} | "
            f"{statistics.median(r[1][1] for r in good):,.0f} | {len(bad)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", default="64,256")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    where = site()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("| ranks | server | median, s | least and most | requests | tries without reply | runs that failed |\n|---|---|---|---|---|---|---|")
    for ranks in map(int, args.ranks.split(",")):
        results = {"ddrun": [], "horovodrun": []}
        for _ in range(args.rounds):
            results["ddrun"].append(run(ranks))
            results["horovodrun"].append(theirs(ranks, where))
        for name, runs in results.items():
            print(f"| {ranks} | {name} | {row(runs)} |", flush=True)
        if args.json:
            print(json.dumps({"ranks": ranks, **results}))

main()
