#!/usr/bin/env python3
"""The store beside PyTorch's own (libuv TCPStore) and beside a floor that only reads and answers, all in one run, in turns.

    tests/bench/bench_store.py [--rounds 3] [--seconds 1.5] [--quick]

The server is bound to one CPU, the load (storebench: N connections, one operation in flight each) to another. Medians over the
rounds are printed, and ratios within the run. The server's processor time for one operation ("cpu, us") suffers less from a
busy machine than op/s do; "others" is what the rest of the machine used meanwhile of two CPUs: with more than a few percent
op/s and p99 tell little. PyTorch's server looks each client's name up while it accepts; so that no name
server decides the result it gets an empty resolv.conf where this may be done (root).
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
TORCH_STORE = os.path.join(HERE, "..", "e2e", "programs", "torch_store.py")

# connections, operation, bytes of a value
GRID = [(64, "mix", 16), (1000, "mix", 16), (5000, "mix", 16), (15000, "mix", 16),
        (64, "get", 1024), (64, "get", 65536), (64, "set", 65536), (16, "get", 1 << 20), (16, "set", 1 << 20)]


HZ = os.sysconf("SC_CLK_TCK")


def busy():
    """Seconds that all CPUs have worked."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _wait, irq, softirq = map(int, f.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / HZ


def worked(pid):
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / HZ


def on_cpu(number):
    cpus = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cpus[number % len(cpus)]})


def torch_argv(empty):
    argv = [PYTHON, TORCH_STORE]
    if os.geteuid() == 0:
        argv = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', empty, *argv]
    return argv


def servers(empty):
    rows = {"floor": [os.path.join(BUILD, "tests", "bench", "epollfloor")],
            "ddrund": [os.path.join(BUILD, "ddrund"), "--insecure", "--listen=127.0.0.1:0"]}
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        rows["torch libuv"] = torch_argv(empty)
    return rows


def once(name, argv, conns, op, size, seconds):
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=on_cpu(0)) as server:
        try:
            port = re.search(r":(\d+)$", server.stdout.readline().strip()).group(1)
            load = [os.path.join(BUILD, "tests", "bench", "storebench"), f"--port={port}", f"--conns={conns}", f"--op={op}",
                    f"--size={size}", f"--seconds={seconds}", f"--pid={server.pid}"] + (["--floor"] if name == "floor" else [])
            start, all_before, ours_before = time.monotonic(), busy(), worked(server.pid) + sum(os.times()[2:4])
            done = subprocess.run(load, capture_output=True, text=True, timeout=300, preexec_fn=on_cpu(1), check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(load)}: exit code {done.returncode}\n{done.stderr}")
            others = busy() - all_before - (worked(server.pid) + sum(os.times()[2:4]) - ours_before)
            return {"others": max(0, others) / 2 / (time.monotonic() - start), **json.loads(done.stdout)}
        finally:
            server.terminate()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", default="1.5")
    ap.add_argument("--quick", action="store_true", help="the small sizes only")
    args = ap.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.NamedTemporaryFile(prefix="resolv") as empty:
        rows = servers(empty.name)
        print(f"{'connections op bytes':24} {'server':12} {'op/s':>9} {'of floor':>9} {'of libuv':>9} {'p50, us':>9} {'p99, us':>9} "
              f"{'cpu, us':>8} {'of floor':>9} {'RSS, MiB':>9} {'others':>7}")
        for conns, op, size in GRID[:4] if args.quick else GRID:
            seen = {name: [] for name in rows}
            for _ in range(args.rounds):
                for name, argv in rows.items():
                    seen[name].append(once(name, argv, conns, op, size, args.seconds))
            med = {name: {k: statistics.median(r[k] for r in runs) for k in ("ops", "p50_us", "p99_us", "cpu_us", "rss_mib", "others")}
                   for name, runs in seen.items()}
            for name, m in med.items():
                ratio = [f"{m['ops'] / med[other]['ops']:9.2f}" if other in med else f"{'-':>9}" for other in ("floor", "torch libuv")]
                print(f"{f'{conns} {op} {size}':24} {name:12} {m['ops']:9.0f} {' '.join(ratio)} {m['p50_us']:9.1f} {m['p99_us']:9.1f} "
                      f"{m['cpu_us']:8.2f} {med['floor']['cpu_us'] / m['cpu_us'] if m['cpu_us'] else 0:9.2f} {m['rss_mib']:9.1f} "
                      f"{m['others']:7.0%}", flush=True)


if __name__ == "__main__":
    main()
