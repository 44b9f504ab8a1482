"""The implementation of each fault of the table.

before(job)         prepares options, environment and directories, before the job starts
inject(job, first)  injects the fault once the round `first` runs; returns the node
after(job, node)    ends the fault, where it has an end
"""

import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from beds import HEARTBEAT
from support import program

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


def nothing(*_):
    return None


@dataclass(frozen=True)
class Way:
    inject: Callable
    before: Callable = nothing
    after: Callable = nothing


def follower(job, first):
    """Return a node of the round that is not the leader's."""
    leader = job.leader()
    return next(line["node"] for line in first if line["node"] != leader)


def on_follower(action):
    def inject(job, first):
        node = follower(job, first)
        action(job, node)
        return node
    return inject


def on_leader(action):
    def inject(job, _):
        node = job.leader()
        action(job, node)
        return node
    return inject


def kill(kind):
    return lambda job, node: job.signal(kind, node)


def outlast_heartbeat():
    """Wait longer than the heartbeat timeout. The test expects no event, so it can wait for time only."""
    time.sleep(1.5 * HEARTBEAT)


def stop_worker(job, node):
    job.signal("worker", node, signal.SIGSTOP)
    outlast_heartbeat()
    job.signal("worker", node, signal.SIGCONT)


def no_descriptors(job, node):
    """Open descriptors stay open; the worker's end makes the agent open more."""
    job.limit("agent", node, resource.RLIMIT_NOFILE, 3)
    job.signal("worker", node)


def refuser(job):
    """Preload a library that refuses memory to the process of a node's ddrun whose pid a file contains."""
    library = job.place / "nomemory.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("nomemory.c")], check=True)
    job.env.update(LD_PRELOAD=str(library), NOMEMORY_IN="ddrun", NOMEMORY_WHILE=f"{job.place}/nomemory.{{node}}")


def no_memory(job, node):
    (job.place / f"nomemory.{node}").write_text(str(job.inner_pid("agent", node)))
    job.signal("worker", node)


def full_log_dir(job):
    job.mount("logs", "size=4k,mode=1777")
    job.options += (f"--log-dir={job.place}/logs",)


def full_tmp(job):
    """Without a free inode, no file can be created."""
    job.mount("fulltmp", "nr_inodes=1,mode=1777")
    job.env["TMPDIR"] = f"{job.place}/fulltmp"


def fake_clock(job):
    """Each node reads the offset of its wall clock from a file."""
    for node in job.nodes:
        set_clock(job, node, "+0")
    job.env.update(LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=f"{job.place}/clock.{{node}}", FAKETIME_NO_CACHE="1",
                   FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_DISABLE_SHM="1")


def set_clock(job, node, offset):
    path = job.place / f"clock.{node}"
    path.with_suffix(".new").write_text(offset + "\n")
    path.with_suffix(".new").rename(path)


def step_clock(job, node):
    set_clock(job, node, "+1d")
    outlast_heartbeat()


WAYS = {
    "worker": Way(on_follower(kill("worker"))),
    "agent": Way(on_follower(kill("agent"))),
    "guardian": Way(on_follower(kill("guardian"))),
    "daemon": Way(on_leader(kill("daemon"))),
    "node": Way(on_follower(lambda job, node: job.crash(node))),
    "leader": Way(on_leader(lambda job, node: job.crash(node))),
    "partition": Way(on_follower(lambda job, node: job.cut(node)), after=lambda job, node: job.heal(node)),
    "slow node": Way(on_follower(lambda job, node: job.signal_all(node, signal.SIGSTOP)),
                     after=lambda job, node: job.signal_all(node, signal.SIGCONT)),
    "stopped worker": Way(on_follower(stop_worker)),
    "disk full": Way(on_follower(nothing), before=full_log_dir),
    "tmp full": Way(on_follower(nothing), before=full_tmp),
    "clock step": Way(on_follower(step_clock), before=fake_clock),
    "no memory": Way(on_follower(no_memory), before=refuser),
    "no descriptors": Way(on_follower(no_descriptors)),
}
