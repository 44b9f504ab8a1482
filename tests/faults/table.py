"""The fault matrix: the reaction of a job to each fault, for each mode and bed.

    python3 tests/faults/table.py          writes the table into docs/reliability.md

test_faults_*.py run every cell; tests/soak draws faults from the same table.
"""

import os
from dataclasses import dataclass

# A mode is how a job knows its nodes, and whether it may continue with others.
MODES = {
    "static": "three nodes, `--nnodes=3`",
    "elastic": "three nodes, `--nnodes=2:3`",
    "spare": "four nodes, `--nnodes=3:3`",
    "etcd": "three nodes that find each other through etcd, `--nnodes=2:3`",
}
OPTIONS = {
    "static": ("--nnodes=3",),
    "elastic": ("--nnodes=2:3", "--last-call=15s"),
    "spare": ("--nnodes=3:3", "--last-call=15s"),
    "etcd": ("--nnodes=2:3", "--last-call=15s"),
}
NODES = {"static": 3, "elastic": 3, "spare": 4, "etcd": 3}
BEDS = {"simulated": "agents on one machine", "slurm": "a Slurm cluster in namespaces"}


@dataclass(frozen=True)
class End:
    """The reaction of a job to a fault. sizes: the possible numbers of workers of the next round, empty if the job ends."""

    text: str
    code: int = 0
    sizes: tuple = ()
    restarts: tuple = (0,)  # the possible values of TORCHELASTIC_RESTART_COUNT then
    names: str = ""  # a part of stderr; {node} and {rank} are those of the victim


UNAFFECTED = End("goes on, no restart")
RESTART = End("restarts on the same nodes", sizes=(3,), restarts=(1,), names="rank {rank} on {node}")
TOO_FEW = End("ends with 1", code=1, names="{node}")
FEWER = End("goes on with 2 nodes", sizes=(2,), names="lost {node}")
SPARE = End("goes on with the spare node", sizes=(3,), restarts=(0, 1), names="lost {node}")
NEXT_DAEMON = End("restarts under another daemon", sizes=(3,), restarts=(1,), names="takes over")
NEXT_DAEMON_ELASTIC = End("goes on under another daemon with 2 or 3 nodes", sizes=(2, 3), restarts=(0, 1),
                          names="takes over")
NEXT_DAEMON_SPARE = End("goes on under another daemon with 3 nodes", sizes=(3,), restarts=(0, 1),
                        names="takes over")
NEXT_LEADER = End("goes on with 2 nodes under another leader", sizes=(2,), restarts=(0, 1), names="takes over")
NEXT_LEADER_SPARE = End("goes on with the spare node under another leader", sizes=(3,), restarts=(0, 1),
                        names="takes over")

LEFT_OUT = {"static": End("ends with the worker's exit code", code=137, names="excluded {node}"),
            "elastic": End("goes on with 2 nodes", sizes=(2,), restarts=(0, 1), names="excluded {node}"),
            "spare": End("goes on with the spare node", sizes=(3,), restarts=(0, 1), names="excluded {node}"),
            "etcd": End("goes on with 2 nodes", sizes=(2,), restarts=(0, 1), names="excluded {node}")}
LOST_NODE = {"static": TOO_FEW, "elastic": FEWER, "spare": SPARE, "etcd": FEWER}
LOST_LEADER = {"static": End("ends with 1", code=1), "elastic": NEXT_LEADER, "spare": NEXT_LEADER_SPARE, "etcd": NEXT_LEADER}


def same(end):
    return dict.fromkeys(MODES, end)


@dataclass(frozen=True)
class Fault:
    what: str
    ends: dict
    beds: tuple = tuple(BEDS)
    options: tuple = ()


FAULTS = {
    "worker": Fault("a worker is killed", same(RESTART)),
    "agent": Fault("the agent of a node is killed", LOST_NODE),
    "guardian": Fault("the guardian of a node is killed", LOST_NODE),
    "daemon": Fault("the daemon is killed", {"static": NEXT_DAEMON, "elastic": NEXT_DAEMON_ELASTIC, "spare": NEXT_DAEMON_SPARE,
                                             "etcd": NEXT_DAEMON_ELASTIC}),
    "node": Fault("a node crashes", LOST_NODE),
    "leader": Fault("the leader's node crashes", LOST_LEADER),
    "partition": Fault("the network of a node is cut", LOST_NODE, beds=("slurm",)),
    "slow node": Fault("all processes of a node stand still for longer than `--heartbeat`", LOST_NODE),
    "stopped worker": Fault("a worker is stopped (SIGSTOP) and continued", same(UNAFFECTED)),
    "disk full": Fault("the file system of `--log-dir` is full", same(UNAFFECTED), options=("--tee=3",)),
    "tmp full": Fault("TMPDIR takes no file", same(UNAFFECTED)),
    "clock step": Fault("the clock of a node is set forward by a day", same(UNAFFECTED)),
    "no memory": Fault("the agent of a node gets no more memory, then a worker is killed", LOST_NODE),
    "no descriptors": Fault("the agent of a node gets no more descriptors, then a worker is killed", LEFT_OUT),
}


def cells(bed):
    """Return (fault, mode) of every cell of this bed."""
    return [(fault, mode) for fault, row in FAULTS.items() if bed in row.beds for mode in MODES]


def markdown():
    """Return the table, one row per fault, one column per mode."""
    lines = ["| fault | " + " | ".join(MODES) + " |", "|---" * (len(MODES) + 1) + "|"]
    for row in FAULTS.values():
        note = "" if set(row.beds) == set(BEDS) else f" (on {' and '.join(row.beds)} alone)"
        lines.append(f"| {row.what}{note} | " + " | ".join(row.ends[mode].text for mode in MODES) + " |")
    return "\n".join(lines) + "\n"


def update(path):
    """Replace the table in this page."""
    with open(path, encoding="utf-8") as f:
        before, _, rest = f.read().partition("| fault |")
    while rest and not rest.startswith("\n\n"):
        rest = rest[1:]
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + markdown() + rest[1:])


if __name__ == "__main__":
    update(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "reliability.md"))
