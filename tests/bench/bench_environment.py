#!/usr/bin/env python3
"""What each further variable of the environment costs a start: processor time of a whole run around a no-op, and of --dry-run
and ddctl env, which compare environments. With four times the variables it should take at most four times as long.

    tests/bench/bench_environment.py [--runs 3]
"""

import argparse
import os
import resource
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
FEW, MANY = 5000, 20000
COMMANDS = {
    "ddrun": ["ddrun", "--nproc-per-node=4", "true"],
    "ddrun --dry-run": ["ddrun", "--dry-run", "--nproc-per-node=4", "true"],
    "ddctl env": ["ddctl", "env"],
}


def seconds(command, variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    env.update({f"A_VARIABLE_{i}": "x" * 10 for i in range(variables)})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([os.path.join(BUILD, command[0]), *command[1:]], env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"| command | {FEW} variables, ms | {MANY}, ms | ratio |\n|---|---|---|---|")
    for name, command in COMMANDS.items():
        few, many = (min(seconds(command, n) for _ in range(runs)) for n in (FEW, MANY))
        print(f"| `{name}` | {few * 1e3:.0f} | {many * 1e3:.0f} | {many / few:.1f} |")


main()
