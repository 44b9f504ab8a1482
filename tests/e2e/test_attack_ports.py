"""Another user of the first node holds the ports on which the job's daemon would listen."""

import os

import pytest

from support import DDRUN, KEY
from test_attack_keys import ATTACKER, VICTIM, pbs_job, users  # noqa: F401
from test_other_ways import nodes  # noqa: F401
from test_slurm import LIMIT

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

COOKIE = "5B2C0D5E1F7A4E3D9C8B7A6F5E4D3C2B"
FIRST, COUNT, NEAR, ALL = 30000, 2768, 16, 1024
MASK = (1 << 64) - 1


def elected(job_id, n):
    """Return the ports that follow from the job id alone, and that every user can compute (src/rdzv/elect.c)."""
    ports = []
    salt = 0
    while len(ports) < n:
        h = 0xcbf29ce484222325 ^ salt
        for c in job_id.encode():
            h = (h ^ c) * 0x100000001b3 & MASK
        h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9 & MASK
        h = (h ^ h >> 27) * 0x94d049bb133111eb & MASK
        port = FIRST + (h ^ h >> 31) % COUNT
        if port not in ports:
            ports.append(port)
        salt += 1
    return ports


def run_both(users, *options, **env):  # noqa: F811
    """Run a job of two nodes whose agents ddrun did not start; return the port on which its daemon listens."""
    command = [DDRUN, "--nproc-per-node=1", "--rdzv-timeout=200s", "--log-level=info", *options, "echo", "ran"]
    with users.start(VICTIM, "node1", *command, **pbs_job(users.place, COOKIE, 0), **env) as first, \
            users.start(VICTIM, "node2", *command, **pbs_job(users.place, COOKIE, 1), **env) as second:
        done = [first.wait(LIMIT), second.wait(LIMIT)]
    assert [(d.rc, d.out) for d in done] == [(0, "ran\n")] * 2, [d.err for d in done]
    line = next(line for line in done[0].err.splitlines() if "on port" in line)
    return int(line.split("on port ")[1].split(";")[0])


def test_a_daemon_takes_the_first_port_that_everybody_computes_when_nobody_holds_it(users):  # noqa: F811
    assert run_both(users) == elected("pbs.12.pbshead", 1)[0]


@pytest.mark.parametrize("how, n", [("silent", NEAR), ("full", NEAR + 8), ("close", 64), ("bound", 64)])
def test_a_job_without_a_secret_beforehand_starts_when_another_user_holds_its_first_ports(users, how, n):  # noqa: F811
    """The key of MUNGE is known only after the nodes have met: the search continues beyond the held ports."""
    ports = elected("pbs.12.pbshead", ALL)
    with users.cluster.squat("node1", ports[:n], how, user=ATTACKER):
        assert run_both(users) in ports[n:]


def test_a_job_with_a_key_has_ports_that_others_cannot_compute(users):  # noqa: F811
    ports = elected("pbs.12.pbshead", ALL)
    with users.cluster.squat("node1", ports, "silent", user=ATTACKER):
        assert run_both(users, DDRUN_KEY=KEY) not in ports


def test_nodes_that_ddrun_starts_itself_have_ports_that_others_cannot_compute(users):  # noqa: F811
    """Their launch package contains the job's key."""
    starter = f"{users.place}/pbs_tmrsh"
    task = " ".join(f"{k}={v}" for k, v in pbs_job(users.place, COOKIE, 1).items())
    with open(starter, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nshift\nexec env -i HOME=$HOME PATH=/bin:/usr/bin {task} \"$@\" </dev/null\n")
    os.chmod(starter, 0o755)
    ports = elected("pbs.12.pbshead", ALL)
    script = {**pbs_job(users.place, COOKIE, 0), "PBS_TASKNUM": "1"}
    with users.cluster.squat("node1", ports, "silent", user=ATTACKER), \
            users.start(VICTIM, "node1", DDRUN, "--launcher=pbs_tmrsh", f"--launch-command={starter}", "--nproc-per-node=1",
                        "sh", "-c", "echo $RANK $MASTER_PORT", **script) as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err
    lines = sorted(line.split() for line in done.out.splitlines())
    assert [line[0] for line in lines] == ["0", "1"] and int(lines[0][1]) not in ports
