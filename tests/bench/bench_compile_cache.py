#!/usr/bin/env python3
"""--compile-cache: the first step of a small model under torch.compile, in a job that compiles and in a second job on another node.

The model (three linear layers with normalization, forward, backward and optimizer) is compiled by Inductor for the CPU, which needs g++.
Each job has simulated nodes with a local directory of their own; only DIR is common to both. Each run begins with an empty DIR, and its
two jobs follow each other, so that the load of the machine is nearly the same for both.

    DDRUN_PYTHON=~/.cache/ddrun/venv/bin/python tests/bench/bench_compile_cache.py [--nodes 1] [--runs 3]
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_FORCE_DISABLE_CACHES")

STEP = """
import os, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 128), torch.nn.GELU(),
                             torch.nn.Linear(128, 10), torch.nn.LogSoftmax(-1))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
model, x = torch.compile(layers), torch.randn(32, 64)
began = time.perf_counter()
model(x).square().mean().backward()
optimizer.step()
from torch._dynamo.utils import counters
print(f"step {time.perf_counter() - began:.3f} hits {counters['inductor']['fxgraph_cache_hit']}", flush=True)
"""


def job(nodes, script, shared, local):
    """The slowest first step of the nodes, and how many graphs the nodes found in their caches."""
    os.mkdir(local)
    env = {k: v for k, v in os.environ.items() if k not in CACHES}
    done = subprocess.run([DDRUN, "--no-config", f"--simulate-nodes={nodes}", "--nproc-per-node=1", f"--stage-dir={local}", *shared, PYTHON, script],
                          capture_output=True, text=True, check=True, env={**env, "TMPDIR": local})
    found = re.findall(r"step ([0-9.]+) hits ([0-9]+)", done.stdout)
    assert len(found) == nodes, done.stdout + done.stderr
    return max(float(s) for s, _ in found), sum(int(h) for _, h in found)


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--nodes", type=int, default=1)
    p.add_argument("--runs", type=int, default=3)
    a = p.parse_args()
    ratios = []
    for run in range(a.runs):
        with tempfile.TemporaryDirectory(prefix="ddrun-bench-") as top:
            script = os.path.join(top, "step.py")
            with open(script, "w", encoding="ascii") as f:
                f.write(STEP)
            shared = [f"--compile-cache={top}/shared"]
            cold, _ = job(a.nodes, script, shared, f"{top}/first")
            warm, hits = job(a.nodes, script, shared, f"{top}/second")
            size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(f"{top}/shared") for f in files)
            ratios.append(cold / warm)
            print(f"run {run + 1}: first step {cold:.1f} s in the first job, {warm:.2f} s in the second ({cold / warm:.1f} times as fast; "
                  f"{hits} graphs found; DIR has {size / 1e6:.1f} MB)", flush=True)
    print(f"median of {a.runs} runs with {a.nodes} node{'s' if a.nodes > 1 else ''}: {statistics.median(ratios):.1f} times as fast")


if __name__ == "__main__":
    main()
