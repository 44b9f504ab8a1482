"""The events of a job name the nodes that have joined and the connections that were refused."""

import contextlib
import json
import os
import socket
import subprocess

import pytest

from support import LIMIT, some_line, until
from test_ddctl_job import Running

TELLS = 'echo "store $MASTER_ADDR $MASTER_PORT"\necho "ready $TORCHELASTIC_RUN_ID $RANK $TORCHELASTIC_RESTART_COUNT"\nuntil [ -e "$1" ]; do sleep 0.05; done\n'
STRANGER = 20002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def job(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", "--no-python", script=TELLS, workers=2) as running:
        _, host, port = next(line for line in running.seen.splitlines() if line.startswith("store ")).split()
        running.place = host, int(port)
        yield running


def events(job, kind):
    found = [json.loads(line) for line in job.ctl("events", "--format=json").splitlines()]
    return [e for e in found if e["event"] == kind]


def test_a_strangers_connection_to_the_store_is_an_event_with_address_uid_and_time(job):
    code = f"import socket; s = socket.create_connection({job.place!r}); print(s.getsockname()[1]); s.sendall(bytes(5)); s.recv(1)"
    done = subprocess.run(["/usr/bin/python3", "-c", code], user=STRANGER, group=STRANGER, extra_groups=[], cwd="/",
                          capture_output=True, text=True, check=False, timeout=LIMIT)
    (event,) = until(lambda: events(job, "refused"), say="the event")
    assert event["address"] == f"127.0.0.1:{done.stdout.strip()}" and event["uid"] == STRANGER and event["count"] == 1
    assert f"uid {STRANGER}" in event["text"] and event["time"].endswith("Z")
    text = job.ctl("events")
    assert some_line(text, "refused", event["address"], f"uid {STRANGER}")


def test_a_caller_that_does_not_speak_as_a_node_is_an_event(job):
    with socket.create_connection(job.place, 30) as s:
        s.sendall(b"\xdd" + b"open, please" * 10)
        with contextlib.suppress(ConnectionError):
            assert s.recv(4096) == b""
    (event,) = until(lambda: events(job, "refused"), say="the event")
    assert event["address"].startswith("127.0.0.1") and "uid" not in event and "hello" in event["text"]


def test_a_flood_leaves_as_many_events_as_its_number_has_bits(job):
    code = f"""
import socket
for _ in range(100):
    with socket.create_connection({job.place!r}) as s:
        s.sendall(bytes(5))
        try:
            s.recv(1)
        except ConnectionError:
            pass
"""
    subprocess.run(["/usr/bin/python3", "-c", code], user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", check=True, timeout=LIMIT)
    until(lambda: len(events(job, "refused")) == 7, say="the seventh event")
    assert [e["count"] for e in events(job, "refused")] == [1, 2, 4, 8, 16, 32, 64]


def test_a_join_has_the_address_of_its_node(job):
    joins = events(job, "join")
    assert len(joins) == 2
    assert sorted("address" in e for e in joins) == [False, True]  # the daemon's own agent has none
