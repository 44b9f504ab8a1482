"""A daemon that is slower than its agents' attempts to connect: they keep their place in its queue."""

import contextlib
import os
import signal
import socket

from support import KEY, Job, free_port, until

NODES = 25
CLOSE_WAIT = "08"


def abandoned(port):
    """Connections to the port whose other side has closed."""
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            with open(table) as f:
                rows = [line.split() for line in f.readlines()[1:]]
            found += sum(row[1].endswith(f":{port:04X}") and row[3] == CLOSE_WAIT for row in rows)
    return found


def go_on(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_agents_of_a_stopped_daemon_wait_for_it_with_one_attempt_and_one_voice(tmp_path):
    key, port = tmp_path / "key", free_port()
    key.write_text(KEY)
    key.chmod(0o600)
    args = [f"--nnodes={NODES}", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}", f"--key-file={key}",
            "--heartbeat=60s", "--rdzv-timeout=180s"]
    with contextlib.ExitStack() as stack:
        leader = stack.enter_context(Job(*args, "--node-rank=0", "true"))
        until(lambda: leader.processes("ddrund"), say="ddrund runs")
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, say="ddrund listens")
        daemon = leader.processes("ddrund")[0]
        os.kill(daemon, signal.SIGSTOP)
        stack.callback(go_on, daemon)
        before = abandoned(port)  # the connection of this test may be one
        guests = [stack.enter_context(Job(*args, f"--node-rank={i}", *(["-v"] if i == NODES - 1 else []), "true")) for i in range(1, NODES)]
        for guest in (guests[0], guests[-1]):  # longer than one attempt: the first one speaks, the last one only with -v
            guest.errors("accepted the connection but did not answer")
        assert abandoned(port) <= before
        go_on(daemon)
        assert [job.wait() for job in (leader, *guests)] == [0] * NODES, leader.err + guests[0].err
        # at most once, if this has taken longer than a minute
        assert all(guest.err.count("waiting for the job's daemon") <= 1 for guest in guests[1:-1])
