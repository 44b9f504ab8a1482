#!/usr/bin/env python3
"""The rendezvous of many nodes: time until all have joined and have their plan, ddrund's processor time and memory per agent.

    tests/bench/bench_agents.py [--agents 1000,4000,12500] [--rounds 1] [--per-process 5000] [--log]

The leader is a real ddrun; the other agents are agentload, several processes, which speak the link protocol through the code of
real agents (TLS included). All run in a network namespace in which each agent has an address of its own, as on a cluster. The times are those of all processes together, so on a machine with few CPUs the agents take as long
as ddrund; ddrund's processor time suffers less from that. A process has a limited number of files: ddrund takes one for each agent.
"""

import argparse
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
SOURCE = "10.0.0.0"  # node n has this address + n
INSIDE = "DDRUN_BENCH_NAMESPACE"
NAMES = ("SLURM", "PBS", "PMI", "OMPI", "DDRUN", "SGE", "LSB")


def enter_namespace():
    """Go on in a network namespace that routes 10.0.0.0/8 to itself."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--map-root-user", "--net", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "add", "local", f"{SOURCE}/8", "dev", "lo"], check=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


def daemon_of(pid):
    """The ddrund among the descendants of pid."""
    for child in children(pid):
        with open(f"/proc/{child}/comm") as f:
            if f.read().strip() == "ddrund":
                return child
        found = daemon_of(child)
        if found:
            return found
    return None


def worked(pid):
    """Processor time in seconds, from the scheduler's own account."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0]) / 1e9


def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty"))) * 1024


class Load:
    """The agents, in several processes."""

    def __init__(self, leader, port, key, agents, each, window):
        self.leader = leader
        self.parts = []
        for first in range(1, agents + 1, each):
            argv = [os.path.join(BUILD, "tests", "bench", "agentload"), f"--port={port}", f"--key-file={key}", f"--nnodes={agents + 1}",
                    f"--first={first}", f"--agents={min(each, agents + 1 - first)}", f"--source={SOURCE}", f"--window={window}"]
            self.parts.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def all(self, step, choose=max):
        """The time at which the last (or first) process has reached the step."""
        at = []
        for part in self.parts:
            while not select.select([part.stdout], [], [], 1)[0]:
                if self.leader.poll() is not None:
                    raise SystemExit(f"ddrun ended with {self.leader.returncode}")
            name, _, when = part.stdout.readline().partition(" ")
            if name != step:
                raise SystemExit(f"agentload: '{step}' expected, got '{name}'")
            at.append(float(when.split()[0]))
        return choose(at)

    def go_on(self):
        for part in self.parts:
            part.stdin.write("\n")
            part.stdin.flush()

    def end(self):
        for part in self.parts:
            if part.wait(timeout=60) != 0:
                raise SystemExit("agentload failed")


def once(agents, each, window, log):
    with tempfile.TemporaryDirectory() as folder:
        key, gate, port = os.path.join(folder, "key"), os.path.join(folder, "gate"), free_port()
        with open(key, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(os.urandom(32).hex())
        os.mkfifo(gate)
        env = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
        argv = [os.path.join(BUILD, "ddrun"), f"--nnodes={agents + 1}", "--nproc-per-node=1", "--node-rank=0", "--master-addr=127.0.0.1",
                f"--master-port={port}", f"--key-file={key}", "--max-restarts=0", "sh", "-c", f"read x < {gate}"]
        with subprocess.Popen(argv, env=env, stderr=None if log else subprocess.DEVNULL) as leader:
            daemon = None
            while daemon is None:
                if leader.poll() is not None:
                    raise SystemExit(f"ddrun ended with {leader.returncode}")
                daemon = daemon_of(leader.pid)
                time.sleep(0.01)
            if log:
                print("ddrund:", daemon, flush=True)
            cpu, ram = worked(daemon), memory(daemon)
            load = Load(leader, port, key, agents, each, window)
            begun = load.all("begun", min)
            linked, planned, committed = (load.all(step) for step in ("linked", "planned", "committed"))
            row = {"linked": linked - begun, "planned": planned - begun, "committed": committed - begun,
                   "cpu": (worked(daemon) - cpu) / agents * 1e3, "ram": (memory(daemon) - ram) / agents / 1024}
            cpu = worked(daemon)
            load.go_on()
            with open(gate, "w") as f:
                f.write("\n")
            load.all("finished")
            row["end"] = (worked(daemon) - cpu) / agents * 1e3
            load.end()
            if leader.wait(timeout=60) != 0:
                raise SystemExit(f"ddrun ended with {leader.returncode}")
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--agents", default="1000,4000,12500")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--per-process", type=int, default=5000)
    p.add_argument("--window", type=int, default=256, help="agents of a process that connect at the same time")
    p.add_argument("--log", action="store_true", help="show ddrun's own messages")
    o = p.parse_args()
    enter_namespace()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    print("| agents | linked, s | planned, s | all started, s | ddrund: ms per agent | to end the job | KiB per agent |\n|---|---|---|---|---|---|---|")
    for agents in map(int, o.agents.split(",")):
        if agents > files - 100:
            print(f"{agents} agents need more files than a process may open here ({files})", file=sys.stderr)
            continue
        rows = [once(agents, o.per_process, o.window, o.log) for _ in range(o.rounds)]
        mid = {k: statistics.median(row[k] for row in rows) for k in rows[0]}
        print("| {:,} | {linked:.2f} | {planned:.2f} | {committed:.2f} | {cpu:.3f} | {end:.3f} | {ram:.1f} |".format(agents, **mid), flush=True)


if __name__ == "__main__":
    main()
