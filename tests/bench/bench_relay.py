#!/usr/bin/env python3
"""The store of a large job behind relays (--store=relay) beside ddrund alone, in one run, in turns.

    tests/bench/bench_relay.py [--ranks 4096] [--peers 64] [--bytes 154] [--nodes 8] [--rounds 3]

One program for each simulated node (storeinit) replays the requests that torch's init_process_group with gloo makes for the ranks
of that node, on a connection for each rank. A rank reads the values of --peers ranks instead of all. On one machine all
processes share the processors, so the figure to compare is the processor time of the busiest of them, which bounds the time of a
job whose nodes are machines of their own: with --store=direct ddrund, with --store=relay ddrund or an agent. The generators'
own time is left out.
"""

import argparse
import os
import signal
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
TICK = os.sysconf("SC_CLK_TCK")


def stat(pid):
    """Return name, parent and processor time in seconds of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        text = f.read()
    fields = text[text.rindex(")") + 2:].split()
    return text[text.index("(") + 1:text.rindex(")")], int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK


def descendants(pid):
    children = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            children.setdefault(stat(p)[1], []).append(int(p))
        except OSError:
            pass
    found = [pid]
    for p in found:
        found += children.get(p, [])
    return found


def connections(pid):
    """Return the number of TCP connections of a process."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    count = 0
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="utf-8") as f:
            count += sum(f"socket:[{line.split()[9]}]" in inodes and line.split()[3] == "01" for line in f.readlines()[1:])
    return count


def run(args, store):
    """Return seconds, requests, processor time of ddrund and of the busiest agent, and connections of ddrund."""
    argv = [os.path.join(BUILD, "ddrun"), f"--store={store}", f"--simulate-nodes={args.nodes}", "--nproc-per-node=1", "--bind=none",
            os.path.join(BUILD, "tests/bench/storeinit"), str(args.ranks), str(args.peers), str(args.bytes)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as p:
        lines = [list(map(int, p.stdout.readline().split())) for _ in range(args.nodes)]
        all_ = {pid: stat(pid) for pid in descendants(p.pid)}
        daemon = next(pid for pid, (name, _, _) in all_.items() if name == "ddrund")
        conns = connections(daemon)
        p.send_signal(signal.SIGTERM)
    seconds = (max(line[1] for line in lines) - min(line[0] for line in lines)) / 1e9
    agents = max(cpu for name, _, cpu in all_.values() if name == "ddrun")
    return seconds, sum(line[2] for line in lines), all_[daemon][2], agents, conns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"ranks": 4096, "peers": 64, "bytes": 154, "nodes": 8, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    runs = {"direct": [], "relay": []}
    for _ in range(args.rounds):
        for store, list_ in runs.items():
            list_.append(run(args, store))
    print(f"{args.ranks:,} ranks, each reads {args.peers} values of {args.bytes} bytes, {args.nodes} nodes, {args.rounds} rounds, medians\n")
    print("| --store | requests | connections of ddrund | its processor time, s | busiest agent's, s | all on this machine, s |")
    print("|---|---|---|---|---|---|")
    busiest = {}
    for store, list_ in runs.items():
        seconds, requests, daemon, agent, conns = (statistics.median(v) for v in zip(*list_, strict=True))
        busiest[store] = statistics.median(max(r[2], r[3]) for r in list_)
        print(f"| {store} | {requests:,.0f} | {conns:,.0f} | {daemon:.2f} | {agent:.2f} | {seconds:.1f} |")
    print(f"\nbusiest process, direct / relay: {busiest['direct'] / busiest['relay']:.1f}x")


if __name__ == "__main__":
    main()
