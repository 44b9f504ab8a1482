#!/usr/bin/env python3
"""An MPI program that only says where it is, under ddrun and under the launchers of its own: the whole run of N ranks.

The launchers of one MPI are run in turns, so that the machine's drift hits all alike; medians are printed, and the ratio to
ddrun. An MPI that is not installed is left out.

    tests/bench/bench_mpi.py [--runs 9] [--ranks 4]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "programs", "mpi_sum.c")


def launchers(kind, ranks):
    """name -> command line without the program"""
    two = [DDRUN, "--simulate-nodes=2", f"--nproc-per-node={ranks // 2}"]
    if kind == "mpich":
        return {"ddrun --mpi=pmi1": [DDRUN, "--mpi=pmi1", f"--nproc-per-node={ranks}"],
                "ddrun --mpi=pmi1, 2 simulated nodes": [*two, "--mpi=pmi1"],
                "mpiexec.hydra": ["mpiexec.hydra", "-n", str(ranks)]}
    return {"ddrun --mpi=pmix": [DDRUN, "--mpi=pmix", f"--nproc-per-node={ranks}"],
            "ddrun --mpi=pmix, 2 simulated nodes": [*two, "--mpi=pmix"],
            "mpirun.openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]}


def once(command, program, ranks):
    start = time.monotonic()
    done = subprocess.run([*command, program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = (time.monotonic() - start) * 1e3
    if done.returncode != 0 or done.stdout.count(f"/{ranks} node") != ranks:
        raise SystemExit(f"{command[0]}: exit code {done.returncode}\n{done.stdout}{done.stderr[-2000:]}")
    return took


def measure(kind, program, args):
    commands = {name: c for name, c in launchers(kind, args.ranks).items() if shutil.which(c[0])}
    took = {name: [] for name in commands}
    for name, command in commands.items():
        once(command, program, args.ranks)  # the files are in memory from here on
    for _ in range(args.runs):
        for name, command in commands.items():
            took[name].append(once(command, program, args.ranks))
    ours = statistics.median(next(iter(took.values())))
    for name, values in took.items():
        m = statistics.median(values)
        print(f"{name:40} {m:8.1f} ms  {min(values):7.1f}-{max(values):.1f}  {m / ours:5.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench_mpi") as place:
        for kind in ("mpich", "openmpi"):
            compiler = shutil.which(f"mpicc.{kind}")
            if compiler is None:
                print(f"no mpicc.{kind}: left out")
                continue
            program = os.path.join(place, f"sum.{kind}")
            subprocess.run([compiler, "-O1", "-o", program, SOURCE], check=True)
            measure(kind, program, args)


if __name__ == "__main__":
    main()
