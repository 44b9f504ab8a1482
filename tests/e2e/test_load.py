"""Without marks of steps: the node whose rank gets no processor is named, and no other (docs/health.md)."""

import json
import os
import shutil

import pytest

from support import DDRUN, lines_with, some_line, until
from test_ddctl_job import RANK_IS_READY, Running

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

# Rank 1 computes on a processor that four other processes use, too. The other ranks never run, so on no machine do they wait for a processor.
STARVED = RANK_IS_READY + f"""
[ "$RANK" = 1 ] || exec sleep 600
loop='while :; do :; done'
for i in 1 2 3 4; do nice -n 5 taskset -c {min(os.sched_getaffinity(0))} sh -c "$loop" & done
exec nice -n 5 taskset -c {min(os.sched_getaffinity(0))} sh -c "$loop"
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel does not count how long processes wait (CONFIG_SCHED_INFO)")
@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset on this machine (Debian: util-linux)")
def test_the_node_whose_rank_gets_no_processor_is_named_and_no_other(tmp_path):
    report = tmp_path / "report.json"
    with Running(tmp_path, "--simulate-nodes=3", "--nproc-per-node=1", "--straggler-interval=1s", f"--report={report}", script=STARVED, workers=3) as job:
        found = until(lambda: job.status().get("stragglers"))
        node, = [n["name"] for n in job.status()["nodes"] if n["node_rank"] == 1]
        assert [(g["rank"], g["node"]) for g in found] == [(1, node)] and "waits for a processor" in found[0]["text"]
        assert "steps" not in job.status()
        for command in (("status",), ("events",), ("top", "--once")):
            assert some_line(job.ctl(*command), f"straggler: rank 1 on {node} waits for a processor"), command
        events = [json.loads(line) for line in job.ctl("events", "--format=json").splitlines()]
        assert [(e["event"], e["rank"], e["node"]) for e in events if "straggler" in e["event"]] == [("straggler", 1, node)]
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()
        assert len(lines_with(job.err, "ddrun", "straggler: rank 1", f"on {node}")) == 1, job.err
        assert [(g["rank"], g["node"]) for g in json.loads(report.read_text())["stragglers"]] == [(1, node)]
