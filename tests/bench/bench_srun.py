#!/usr/bin/env python3
"""What ddrun adds to a Slurm step: `srun -N4 ddrun true` beside `srun -N4 true`, in turns, on the throw-away cluster; and an
Open MPI program under Slurm's own PMIx and under ddrun's, where there is one.

    tests/bench/bench_srun.py [--runs 15] [--nodes 4]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))

from cluster import Cluster, Options, why_not  # noqa: E402

BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")


def timed(cluster, argv):
    start = time.monotonic()
    done = cluster.run(argv, timeout=120)
    took = (time.monotonic() - start) * 1e3
    if done.rc != 0:
        raise SystemExit(f"{' '.join(argv)}: exit code {done.rc}\n{done.err}")
    return took


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=15)
    ap.add_argument("--nodes", type=int, default=4)
    args = ap.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"no cluster here: {reason}")
    srun = ["srun", f"-N{args.nodes}"]
    rows = {"srun true": [*srun, "true"], "srun ddrun true": [*srun, DDRUN, "--nproc-per-node=1", "true"],
            "srun ddrun, 4 a node": [*srun, DDRUN, "--nproc-per-node=4", "true"]}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        measure(args, rows, place)


def mpi_rows(place, srun, nodes):
    """An MPI program that only says where it is, 4 ranks a node."""
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None:
        return {}
    program = os.path.join(place, "sum")
    subprocess.run([compiler, "-O1", "-o", program, os.path.join(HERE, "..", "e2e", "programs", "mpi_sum.c")], check=True)
    return {"srun --mpi=pmix MPI": [*srun, f"-n{4 * nodes}", "--overcommit", "--mpi=pmix", program],
            "srun ddrun --mpi=pmix": [*srun, DDRUN, "--nproc-per-node=4", "--mpi=pmix", program]}


def measure(args, rows, place):
    rows |= mpi_rows(place, rows["srun true"][:2], args.nodes)
    os.chmod(place, 0o755)
    times = {name: [] for name in rows}
    with Cluster(Options(nodes=args.nodes, share=[BUILD, os.path.dirname(HERE), place])) as cluster:
        for i in range(args.runs + 1):
            for name, argv in rows.items():
                took = timed(cluster, argv)
                if i > 0:  # the first of each warms the caches
                    times[name].append(took)
    base = statistics.median(times["srun true"])
    print(f"{'step on %d nodes' % args.nodes:24} {'median, ms':>10} {'min-max':>16} {'more than srun, ms':>19}")
    for name, t in times.items():
        pairs = statistics.median(x - y for x, y in zip(t, times["srun true"]))
        print(f"{name:24} {statistics.median(t):10.1f} {min(t):7.1f}-{max(t):<8.1f} {pairs:19.1f}")


if __name__ == "__main__":
    main()
