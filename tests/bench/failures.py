#!/usr/bin/env python3
"""Plants faults in a job of 8 workers (PyTorch, gloo) and prints what ddrun and torchrun report, as the table of docs/failures.md.

failures.py [FAULT]...: all faults, or these. The file of ddrun's --report judges each row: exit code 1 if one names another rank, node or
cause than the fault has. DDRUN_PYTHON names a Python with torch; DDRUN_BUILD the build directory. As root, a small file system and a cgroup
are made for the faults that need them; otherwise these rows say so. Takes about ten minutes on two CPUs.
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build"))
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
FAULTY = os.environ.get("FAULTY", os.path.join(HERE, "..", "e2e", "programs", "faulty.py"))
WORKERS, RANK, LIMIT = 8, 5, 120
V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
CGROUP = "/sys/fs/cgroup" + ("" if V2 else "/memory") + f"/ddrun-failures-{os.getpid()}"

STEPS = os.path.join(HERE, "..", "e2e", "programs", "steps.py")
PACKAGE = os.path.join(HERE, "..", "..", "python")
TIMEOUT = {"GLOO_TIMEOUT": "10"}
GLOO = ("gloo-timeout", "gloo-peer-lost")
SIMULATED = ("--simulate-nodes=4", "--nproc-per-node=2")
# Fails on the third simulated node: its agents have the command as parent in the order of the nodes.
CHECK = """agent=$(ps -o ppid= -p $PPID); job=$(ps -o ppid= -p $agent)
[ $(ps -o pid= --ppid $job | awk '$1 <= agent' agent=$agent | wc -l) != 3 ] || { echo uncorrectable ECC errors on GPU 1; exit 1; }"""


def by_culprit(report, fault):
    """Return what the report should name, but does not."""
    node = "sim3" if fault.options[:2] == SIMULATED else report["nodes"] == 1 and report["failures"][0]["node"]
    expected = {"ranks": str(RANK), "node": node, "blame": fault.blame}
    wrong = [f"{name} {value}" for name, value in expected.items() if (report["culprit"] or {}).get(name) != value]
    if report["known_cause"] not in fault.known:
        wrong.append(f"one of the causes {fault.known}")
    return ", ".join(wrong)


def by_cause(report, fault):  # pylint: disable=unused-argument
    return "" if report["cause"].startswith("sim3 cannot be used: uncorrectable ECC") else "sim3"


def by_stragglers(report, fault):  # pylint: disable=unused-argument
    # steps.py slows down node rank 1, which has ranks 2 and 3
    return "" if {(g["rank"] // 2, g["node"]) for g in report["stragglers"]} == {(1, "sim2")} else "stragglers on sim2"


class Fault(NamedTuple):
    """A fault, and what the report of ddrun should say."""

    title: str
    name: str  # the argument of faulty.py
    options: tuple = ()  # of ddrun
    way: str = ""  # in front of the launcher: see prepared()
    variables: dict = {}
    known: tuple = (None,)  # one of these is the known cause
    blame: str = "worker"
    judged: object = by_culprit
    torchrun: str = ""  # why torchrun is not run
    program: tuple = ()  # instead of faulty.py


HANG = ("--hang-timeout=40s",)
FAULTS = [
    Fault("an exception on rank 5", "exception"),
    Fault("a missing module on rank 5", "module", known=("missing-module",)),
    Fault("rank 5 writes to a full file system", "full", way="tmpfs", known=("disk-full",)),
    Fault("rank 5 listens on a port in use", "port", known=("port-in-use",)),
    Fault("SIGKILL of a DataLoader's process of rank 5", "loader", known=("dataloader-worker-killed",)),
    Fault("SIGKILL of rank 5", "kill", known=("sigkill",), blame="sender"),
    Fault("rank 5 exceeds the memory of the cgroup", "memory", way="cgroup", known=("oom-killer",)),
    Fault("rank 5 exits with 0 while the others go on", "early", known=("early-exit",)),
    Fault("rank 5 sleeps outside a collective; the others time out after 10 s", "sleep", variables=TIMEOUT, known=GLOO),
    Fault("the same, without that timeout; ddrun has `--hang-timeout=40s`", "sleep", HANG, known=("hang",)),
    Fault("SIGSTOP of rank 5; the others time out after 10 s", "stop", variables=TIMEOUT, known=GLOO),
    Fault("rank 5 waits in another collective (`all_gather`) than the rest; ddrun: 4 simulated nodes, `--hang-timeout=40s`", "gather",
          SIMULATED + HANG, known=("hang",)),
    Fault("the same, on one node; the others time out after 10 s", "gather", variables=TIMEOUT, known=GLOO),
    Fault("a DataLoader process of rank 5 never answers; ddrun: 4 simulated nodes, `--hang-timeout=40s`", "stuck-loader", SIMULATED + HANG,
          known=("dataloader-worker-stuck",)),
    Fault("a node whose health check fails (4 simulated nodes, `--health-check`)", "health", (*SIMULATED, "--health-check=" + CHECK), judged=by_cause,
          torchrun="checks no nodes"),
    Fault("a step ten times slower on one node (4 simulated nodes, steps are marked; rank 0 fails at the end)", "slow", SIMULATED,
          judged=by_stragglers, torchrun="measures no steps", program=("steps.py", "gloo")),
]


def prepared(command, way, folder):
    """Return the command within a small file system or cgroup."""
    if way == "tmpfs":
        small = os.path.join(folder, "small")
        os.mkdir(small)
        inner = f'mount -t tmpfs -o size=1m none {small} && FULL={small} exec "$@"'
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


def descendants(pid):
    """Return the processes that this one has started, also those with sessions of their own, as torchrun's workers have."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = [int(word) for word in f.read().split()]
    except OSError:
        return []
    return [found for child in children for found in (*descendants(child), child)]


def launched(command, fault, folder):
    """Run a launcher to its end; return its stderr, its exit code (None: it was ended here) and seconds."""
    env = dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=folder, PYTHONPATH=PACKAGE, PATH=os.pathsep.join((os.path.dirname(PYTHON), BUILD, os.environ["PATH"])),
               **fault.variables)
    start = time.monotonic()
    try:
        p = subprocess.Popen(prepared(command, fault.way, folder), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    except OSError as e:
        return str(e), None, 0
    try:
        err, code = p.communicate(timeout=LIMIT)[1], p.returncode
    except subprocess.TimeoutExpired:
        for pid in (p.pid, *descendants(p.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        err, code = p.communicate()[1], None
    return err, code, time.monotonic() - start


def written(err, code, seconds, reader, fault):
    """Return a cell of the table."""
    if os.environ.get("FAILURES_KEEP"):
        with open(os.path.join(os.environ["FAILURES_KEEP"], f"{fault.name}{len(fault.options)}.{reader.__name__}"), "w", encoding="utf-8") as f:
            f.write(err)
    return reader(err, code) + (f"; exit code {code}" if code is not None else f" within {seconds:.0f} s")


def judged(fault, path):
    """Return what the report in this file should name, but does not."""
    try:
        with open(path, encoding="utf-8") as f:
            return fault.judged(json.load(f), fault)
    except OSError as e:
        return f"something: {e}"


def under_ddrun(fault):
    """Return the cell of ddrun, and what its report should name, but does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        program = (FAULTY, fault.name, str(RANK))
        if fault.program:
            program = (STEPS, fault.program[1], folder, "100")
            for name in ("slow", "fail"):
                with open(os.path.join(folder, name), "w", encoding="ascii"):
                    pass
        nodes = () if fault.options[:2] == SIMULATED else (f"--nproc-per-node={WORKERS}",)
        ran = launched([os.path.join(BUILD, "ddrun"), f"--report={path}", *nodes, *fault.options, *program], fault, folder)
        return written(*ran, by_ddrun, fault), judged(fault, path)


def under_torchrun(fault):
    if fault.torchrun:
        return fault.torchrun
    with tempfile.TemporaryDirectory() as folder:
        torchrun = [os.path.join(os.path.dirname(PYTHON), "torchrun"), "--standalone", f"--nproc-per-node={WORKERS}"]
        return written(*launched([*torchrun, FAULTY, fault.name, str(RANK)], fault, folder), by_torchrun, fault)


def cell(text):
    text = re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
    return text if text.startswith("`") else re.sub("([<>])", r"\\\1", text)


def shortened(line, most=150):
    line = re.sub(r"/\S*/(third_party|torch)/", r"", line)
    return line if len(line) <= most else line[:most - 1] + "…"


def by_ddrun(err, code):
    found = re.search(r"^ddrun.*?: error: (rank (?!.* (?:seems hung|is stopped)).*|the job hung: .*|\S+ cannot be used: .*)$", err, re.M)
    if code is None or found is None:
        return "nothing" if code is None else shortened(err.strip().splitlines()[-1])
    lines = ["`" + shortened(found[1]) + "`"]
    for name in ("culprit", "cause", "straggler"):
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
    unknown = set(only) - {fault.name for fault in FAULTS}
    if unknown:
        sys.exit(f"failures.py: there is no fault '{unknown.pop()}'; there are: {' '.join(dict.fromkeys(f.name for f in FAULTS))}")
    wrong = []
    print("| fault | ddrun | torchrun 2.13 |\n|---|---|---|", flush=True)
    for fault in FAULTS:
        if only and fault.name not in only:
            continue
        cells, missing = under_ddrun(fault)
        if missing:
            wrong.append(f"error: '{fault.title}': the report of ddrun should name {missing}")
        print(f"| {fault.title} | {cells} | {under_torchrun(fault)} |", flush=True)
        if os.path.isdir(CGROUP):
            os.rmdir(CGROUP)
    for line in wrong:
        print(line, file=sys.stderr)
    return len(wrong) > 0


sys.exit(main())
