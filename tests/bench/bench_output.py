#!/usr/bin/env python3
"""What it costs that workers' lines come out whole: lines per second, latency of a line, torn lines and start, of ddrun with
its kinds of --output beside torchrun, and of ddrun beside srun on the throw-away cluster.

    tests/bench/bench_output.py [--runs 5] [--workers 4] [--no-cluster]

Each launcher is run in turns. Its stdout is a pipe to a reader that only counts, so lines per second are those between the
first byte and the last.
"""

import argparse
import json
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))

BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
WORKER_PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LINES = {"blocks": 300_000, "pieces": 40_000, "paced": 300}
LINE = re.compile(rb"(?:\[\d+\]: )?(?:rank \d+ line \d+ x{40}|at (\d+))$")


def write(kind):
    """What a worker does."""
    rank, n = os.environb.get(b"RANK", os.environb.get(b"SLURM_PROCID", b"0")), LINES[kind]
    line = b"rank %s line %%d %s\n" % (rank, b"x" * 40)
    if kind == "blocks":  # as Python and C buffer
        for i in range(0, n, 100):
            os.write(1, b"".join(line % k for k in range(i, i + 100)))
    elif kind == "pieces":  # as Python does with -u
        for i in range(n):
            os.write(1, (line % i)[:-1])
            os.write(1, b"\n")
    else:
        for _ in range(n):
            os.write(1, b"at %d\n" % time.monotonic_ns())
            time.sleep(0.002)


def read():
    """The reader: what came, as JSON."""
    first = last = None
    rest, lines, torn, late = b"", 0, 0, []
    while piece := os.read(0, 1 << 20):
        last = time.monotonic_ns()
        first = first or last
        whole = (rest + piece).split(b"\n")
        rest = whole.pop()
        lines += len(whole)
        if len(piece) < 4096:
            late += [last - int(found[1]) for found in map(LINE.match, whole) if found and found[1]]
        torn += sum(not LINE.match(line) for line in whole) if lines < 200_000 else 0
    print(json.dumps({"lines": lines, "s": (last - first) / 1e9 if first else 0, "torn": torn, "late": late}))


def launchers(workers):
    script = [WORKER_PYTHON, os.path.abspath(__file__), "--write"]
    n = f"--nproc-per-node={workers}"
    rows = {"ddrun": [DDRUN, n, "--no-python", *script], "ddrun --output=labels": [DDRUN, "--output=labels", n, "--no-python", *script],
            "ddrun --output=raw": [DDRUN, "--output=raw", n, "--no-python", *script]}
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        rows["torchrun"] = [PYTHON, "-m", "torch.distributed.run", "--standalone", n, "--no-python", *script]
    return rows


def piped(argv, kind):
    return ["sh", "-c", f"{shlex.join([*argv, kind])} | {shlex.join([WORKER_PYTHON, os.path.abspath(__file__), '--read'])}"]


def local(argv):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout


def measure(title, rows, run, runs):
    seen = {name: {kind: [] for kind in LINES} for name in rows}
    for i in range(runs + 1):
        for kind in LINES:
            for name, argv in rows.items():
                got = json.loads(run(piped(argv, kind)))
                if i > 0 or runs == 0:  # the first warms the caches
                    seen[name][kind].append(got)
    base = None
    print(f"\n{title}\n| launcher | blocks, lines/s | ratio | pieces, lines/s | ratio | torn of | latency p50, us | p99, us |\n|---|---|---|---|---|---|---|---|")
    for name, kinds in seen.items():
        speed = [statistics.median(g["lines"] / g["s"] for g in kinds[kind]) for kind in ("blocks", "pieces")]
        base = base or speed
        torn, lines = (sum(g[what] for g in kinds["pieces"]) for what in ("torn", "lines"))
        late = sorted(x for g in kinds["paced"] for x in g["late"])
        quantile = [late[int(len(late) * q)] / 1e3 for q in (0.5, 0.99)]
        print(f"| {name} | {speed[0]:,.0f} | {speed[0] / base[0]:.2f} | {speed[1]:,.0f} | {speed[1] / base[1]:.2f} | {torn:,} of {lines:,}"
              f" | {quantile[0]:.0f} | {quantile[1]:.0f} |")


def starts(workers, runs):
    took = {"raw": [], "lines": []}
    for _ in range(10 * runs + 1):
        for kind, t in took.items():
            start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            local([DDRUN, f"--output={kind}", f"--nproc-per-node={workers}", "true"])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            t.append((1e3 * (time.monotonic() - start), 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)))
    print("\nwhole run around a no-op, ms, and processor time of it: " + ", ".join(
        kind + " {:.1f}, {:.1f}".format(*map(statistics.median, zip(*t[1:]))) for kind, t in took.items()))


def on_slurm(runs, workers):
    from cluster import Cluster, Options, why_not
    reason = why_not()
    if reason:
        print(f"\n(no cluster here: {reason})")
        return
    script = [WORKER_PYTHON, os.path.abspath(__file__), "--write"]
    each = max(workers // 2, 1)
    rows = {"srun ddrun": ["srun", "-N2", DDRUN, f"--nproc-per-node={each}", "--no-python", *script],
            "srun ddrun --output=raw": ["srun", "-N2", DDRUN, "--output=raw", f"--nproc-per-node={each}", "--no-python", *script],
            "srun": ["srun", "-N2", f"-n{2 * each}", "--overcommit", *script]}
    with Cluster(Options(nodes=2, share=[BUILD, os.path.dirname(HERE)])) as cluster:
        measure("a step on 2 Slurm nodes", rows, lambda argv: cluster.run(argv, timeout=300).out, runs)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--no-cluster", action="store_true")
    args = ap.parse_args()
    measure(f"{args.workers} workers of one machine", launchers(args.workers), local, args.runs)
    starts(args.workers, args.runs)
    if not args.no_cluster:
        on_slurm(max(args.runs - 2, 1), args.workers)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2])
    elif sys.argv[1:] == ["--read"]:
        read()
    else:
        main()
