"""Another user keeps munged busy, whose few threads wait for each silent connection: no job is lost by that."""

import os
import re

import pytest

from cluster import until
from support import DDRUN, built_with, program

LIMIT = 240
PYTHON3 = "/usr/bin/python3"

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("MUNGE"), reason="ddrun was built without libmunge (libmunge-dev)")]


def test_ddrund_serves_its_agents_while_munged_does_not_answer_it(cluster):
    go = os.path.join(cluster.directory("munge", "alice"), "go")
    args = ["--hosts=node[1-2]", "--rdzv-id=munge", "--heartbeat=5s", "--log-level=info", "--nproc-per-node=1", "--no-python",
            "sh", "-c", f"echo begun; until [ -e {go} ]; do sleep 0.1; done"]
    runs = [cluster.popen([DDRUN, *args], node=name, user="alice") for name in ("node1", "node2")]
    flood = None
    try:
        until(lambda: all("begun" in run.out for run in runs), LIMIT, lambda: runs[0].err + runs[1].err)
        assert "key source: MUNGE" in runs[0].err, runs[0].err
        job, port = re.search(r"leading job '(\S+)' on port (\d+)", runs[0].err).groups()
        daemon, = [p.pid for p in cluster.processes("node1") if p.cmdline == "ddrund"]
        filters = cluster.run(["sh", "-c", f"grep -h ^Seccomp: /proc/{daemon}/task/*/status"], node="node1").out.split()
        assert filters == ["Seccomp:", "2"] * 2  # of the event loop, and of the thread that asks munged
        flood = cluster.popen([PYTHON3, program("munge_flood.py"), "/run/munge/munge.socket.2", cluster.address("node1"), port, job],
                              node="node1", user="bob")
        until(lambda: "asked" in flood.out or any(run.rc is not None for run in runs), LIMIT, lambda: flood.out + flood.err)
        cluster.run(["touch", go], user="alice")
        done = [run.wait(LIMIT) for run in runs]
        assert [d.rc for d in done] == [0, 0], done[0].err + done[1].err
    finally:
        for run in (*runs, flood):
            if run is not None:
                run.__exit__(None, None, None)
