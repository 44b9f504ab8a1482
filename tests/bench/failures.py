#!/usr/bin/env python3
"""Plants faults in a job of 8 workers (PyTorch, gloo) and prints what ddrun and torchrun report, as the table of docs/failures.md.

DDRUN_PYTHON names a Python with torch; DDRUN_BUILD the build directory. As root, a small file system and a cgroup are made for the faults
that need them; otherwise these rows say so. Takes about ten minutes on two CPUs.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build"))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
FAULTY = os.environ.get("FAULTY", os.path.join(HERE, "..", "e2e", "programs", "faulty.py"))
WORKERS, RANK, LIMIT = 8, 5, 120
V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
CGROUP = "/sys/fs/cgroup" + ("" if V2 else "/memory") + f"/ddrun-failures-{os.getpid()}"

# Title, argument of faulty.py, options of ddrun, command in front of the launcher, variables
FAULTS = [
    ("an exception on rank 5", "exception", [], None, {}),
    ("a missing module on rank 5", "module", [], None, {}),
    ("rank 5 writes to a full file system", "full", [], "tmpfs", {}),
    ("rank 5 listens on a port in use", "port", [], None, {}),
    ("SIGKILL of a DataLoader's process of rank 5", "loader", [], None, {}),
    ("SIGKILL of rank 5", "kill", [], None, {}),
    ("rank 5 exceeds the memory of the cgroup", "memory", [], "cgroup", {}),
    ("rank 5 sleeps outside a collective; the others time out after 10 s", "sleep", [], None, {"GLOO_TIMEOUT": "10"}),
    ("the same, without that timeout; ddrun has `--hang-timeout=40s`", "sleep", ["--hang-timeout=40s"], None, {}),
    ("SIGSTOP of rank 5; the others time out after 10 s", "stop", [], None, {"GLOO_TIMEOUT": "10"}),
]


def prepared(command, way, folder):
    """Return the command within a small file system or cgroup."""
    if way == "tmpfs":
        inner = f'mount -t tmpfs -o size=1m none {folder} && FULL={folder} exec "$@"'
        return ["unshare", "-m", "sh", "-c", inner, "sh", *command]
    if way == "cgroup":
        os.makedirs(CGROUP, exist_ok=True)
        with open(CGROUP + ("/memory.max" if V2 else "/memory.limit_in_bytes"), "w", encoding="ascii") as f:
            f.write(str(4 << 30))
        if V2:
            with open(CGROUP + "/memory.swap.max", "w", encoding="ascii") as f:
                f.write("0")
        return ["sh", "-c", f'echo $$ > {CGROUP}/cgroup.procs && exec "$@"', "sh", *command]
    return command


def launched(command, way, variables):
    """Run a launcher to its end; return its stderr, its exit code (None: it was ended here) and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=folder, PATH=os.path.dirname(PYTHON) + ":" + os.environ["PATH"], **variables)
        start = time.monotonic()
        try:
            p = subprocess.Popen(prepared(command, way, folder), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        except OSError as e:
            return str(e), None, 0
        try:
            err, code = p.communicate(timeout=LIMIT)[1], p.returncode
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGCONT)
            os.killpg(p.pid, signal.SIGKILL)
            err, code = p.communicate()[1], None
        return err, code, time.monotonic() - start


def cell(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def shortened(line, most=150):
    line = re.sub(r"/\S*/(third_party|torch)/", r"", line)
    return line if len(line) <= most else line[:most - 1] + "…"


def by_ddrun(err, code):
    found = re.search(r"^ddrun.*?: error: (rank .*)$", err, re.M)
    if code is None or found is None:
        return "nothing" if code is None else shortened(err.strip().splitlines()[-1])
    lines = ["`" + shortened(found[1]) + "`"]
    for name in ("culprit", "cause"):
        more = re.search(rf"^  {name}: (.*)$", err, re.M)
        lines += [f"**{name}** {more[1]}"] if more else []
    return "<br>".join(map(cell, lines))


def by_torchrun(err, code):
    """Return the block 'Root Cause', and how many failures are above it."""
    if code is None:
        return "nothing"
    found = re.search(r"Root Cause.*?rank +: (\d+).*?exitcode +: (-?\d+).*?traceback : (.*?)\n=", err, re.S)
    if found is None:
        return "`" + cell(shortened(err.strip().splitlines()[-1])) + "`"
    above = err.split("Root Cause")[0].count("exitcode  :")
    return cell(f"`Root Cause (first observed failure)`: rank {found[1]}, exit code {found[2]}, `{shortened(found[3])}`; {above} more ranks are listed above it")


def main():
    only = sys.argv[1:]
    print("| fault | ddrun | torchrun 2.13 |\n|---|---|---|", flush=True)
    for title, fault, options, way, variables in FAULTS:
        if only and fault not in only:
            continue
        row = []
        for command, reader in (([os.path.join(BUILD, "ddrun"), f"--nproc-per-node={WORKERS}", *options], by_ddrun),
                                ([os.path.join(os.path.dirname(PYTHON), "torchrun"), "--standalone", f"--nproc-per-node={WORKERS}"], by_torchrun)):
            err, code, seconds = launched([*command, FAULTY, fault, str(RANK)], way, variables)
            if os.environ.get("FAILURES_KEEP"):
                with open(os.path.join(os.environ["FAILURES_KEEP"], f"{fault}{len(options)}.{reader.__name__}"), "w", encoding="utf-8") as f:
                    f.write(err)
            end = f"; exit code {code}" if code is not None else f" within {seconds:.0f} s"
            row.append(reader(err, code) + end)
        if os.path.isdir(CGROUP):
            os.rmdir(CGROUP)
        print(f"| {title} | {row[0]} | {row[1]} |", flush=True)


main()
