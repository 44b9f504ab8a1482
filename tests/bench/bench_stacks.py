#!/usr/bin/env python3
"""Stacks of many workers on one node: one job of workers that wait in Python, asked by `ddctl stacks` several times. Prints the time
that the daemon reports, of how many workers the frames were read, and the load average, since other programs delay the answer.

    tests/bench/bench_stacks.py [--workers 1024] [--runs 5] [--python FILE] [--py-spy FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
WORKER = """
import os, time
def train_step():
    if os.environ["RANK"] == "0":
        with open(os.environ["PLACE"] + "/job", "w") as f:
            f.write(os.environ["TORCHELASTIC_RUN_ID"])
    os.write(9, b".")
    time.sleep(100000)
train_step()
"""


def count(ranks):
    ends = [[int(n) for n in r.split("-")] for r in ranks.split(",")]
    return sum(e[-1] - e[0] + 1 for e in ends)


def ask(place):
    with open(os.path.join(place, "job")) as f:
        command = [os.path.join(BUILD, "ddctl"), "stacks", "--format=json", "--timeout=2s", f"--job={f.read()}"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer["seconds"], sum(count(g["ranks"]) for g in answer["groups"] if g["kind"] == "python")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--py-spy", default="none")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        fifo = os.path.join(place, "ready")
        os.mkfifo(fifo)
        ready = os.open(fifo, os.O_RDWR)
        shell = f'exec 9>{fifo}; PLACE={place} exec "{o.python}" -S -c "$0"'
        job = subprocess.Popen([os.path.join(BUILD, "ddrun"), f"--nproc-per-node={o.workers}", f"--py-spy={o.py_spy}", "sh", "-c",
                                shell, WORKER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            n = 0
            while n < o.workers:
                n += len(os.read(ready, 4096))
            print("| run | seconds | frames read | load average |\n|---|---|---|---|")
            for run in range(o.runs):
                seconds, read = ask(place)
                print(f"| {run + 1} | {seconds:.2f} | {read} of {o.workers} | {os.getloadavg()[0]:.0f} |", flush=True)
        finally:
            job.terminate()
            job.wait()


main()
