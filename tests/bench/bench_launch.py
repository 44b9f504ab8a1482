#!/usr/bin/env python3
"""What a tree of starters is worth: many nodes on this machine, started by a stand-in for ssh.

The stand-in takes its time, as ssh does, and a machine has time for one at a time: a lock for each process that starts nodes.
All agents run on this one machine, so what they cost themselves is the same for all fan-outs.

bench_launch.py [--nodes 32,128] [--fanouts 0,32] [--cost-ms 200] [--runs 3]      (as root: it makes a network namespace)
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DDRUN = os.environ.get("DDRUN", str(pathlib.Path(os.environ.get("DDRUN_BUILD", HERE.parent.parent)) / "ddrun"))
ADDRESS = "10.99.0.1"
NETWORK = ["unshare", "-n", "sh", "-c", f'ip link set lo up && ip addr add {ADDRESS}/32 dev lo && exec "$@"', "sh"]
STAND_IN = """#!/bin/sh
shift
flock {place}/lock.$PPID sleep {cost}
exec sh -c "$*"
"""


def run(place, nodes, fanout):
    hosts = f"{ADDRESS}," + ",".join(f"198.51.{100 + i // 250}.{1 + i % 250}" for i in range(nodes - 1))
    words = [DDRUN, "--launcher=ssh", f"--launch-command={place}/stand-in", f"--launch-fanout={fanout}", f"--hosts={hosts}",
             "--nproc-per-node=1", "--rdzv-timeout=120s", "true"]
    begin = time.monotonic()
    subprocess.run([*NETWORK, *words], check=True, timeout=300)
    return time.monotonic() - begin


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=numbers, default=[32, 128])
    p.add_argument("--fanouts", type=numbers, default=[0, 32])
    p.add_argument("--cost-ms", type=float, default=200)
    p.add_argument("--runs", type=int, default=3)
    a = p.parse_args()
    print(f"whole run around a no-op, s; {a.cost_ms:.0f} ms for each start, one after the other on each machine; "
          f"median of {a.runs}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place) / "stand-in"
        path.write_text(STAND_IN.format(place=place, cost=a.cost_ms / 1000))
        path.chmod(0o755)
        for nodes in a.nodes:
            for fanout in a.fanouts:
                times = [run(place, nodes, fanout) for _ in range(a.runs)]
                print(f"{nodes:5} nodes, fan-out {fanout or 'all':>4}: {statistics.median(times):6.2f}  "
                      f"({min(times):.2f}-{max(times):.2f})", flush=True)


if __name__ == "__main__":
    main()
