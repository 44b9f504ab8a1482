"""DDRUN_TRACE and --trace: the steps of the two state machines, and contrib/trace-order, which merges those of all nodes."""
import os
import re
import subprocess
import sys

import pytest
from support import HERE, LIMIT, clean_env, run, told

TRACE_ORDER = os.path.join(HERE, "..", "..", "contrib", "trace-order")
RESTARTS_ONCE = "[ $DDRUN_ROUND$RANK != 01 ] || exit 3"
NODES = ("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1")


def trace_order(*files, stdin=None):
    p = subprocess.run([sys.executable, TRACE_ORDER, *files], input=stdin, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 0, p.stderr
    return p.stdout


def place(text, pattern, at=0):
    """Return where the first line that matches the pattern begins, from `at` on."""
    m = re.compile(pattern, re.MULTILINE).search(text, at)
    assert m is not None, f"{pattern}\n{text}"
    return m.start()


def assert_tells_of_one_restart(text):
    for r, worker_gone in ((0, "sim2"), (1, "sim1")):
        begins = place(text, rf"sim1 +ddrund .*round {r} begins")
        for node in ("sim1", "sim2"):  # events of one node are in the order of its clock
            place(text, rf"sim1 +ddrund +-> {node}: plan", begins)
            runs = place(text, rf"{node} +agent +\S+ --plan--> running +\(round {r}\)", begins)
            assert text.count(f"{node}  agent   <- daemon: plan", 0, runs) == r + 1
        ended = place(text, rf"{worker_gone} +agent +running --workers-gone--> settling +\(round {r}\)", begins)
        place(text, rf"sim1 +ddrund +\S+ --done--> .*\(round {r}, about {worker_gone}", ended)
    failed = place(text, r"sim1 +ddrund +running --exit--> stopping +\(round 0, about sim2\)")
    assert failed < place(text, r"ddrund .*round 1 begins") < place(text, r"ddrund .* --done--> finished")
    assert text.count("begins)") == 2


def shifted(line, monotonic, wall):
    """Return the line as a machine whose clocks are ahead would write it."""
    line = re.sub(r" t=(\S+)", lambda m: f" t={float(m[1]) + monotonic:.6f}", line)
    return re.sub(r" wall=(\S+)", lambda m: f" wall={float(m[1]) + wall:.6f}", line)


def test_trace_order_shows_all_nodes_of_a_restarted_job_in_order(tmp_path):
    job = run(*NODES, "sh", "-c", RESTARTS_ONCE, env=clean_env(DDRUN_TRACE="machine,link"))
    assert job.p.returncode == 0
    assert_tells_of_one_restart(trace_order(stdin=job.err))
    lines = job.err.splitlines()
    other = [line for line in lines if line.startswith("ddrun[sim2]")]
    (tmp_path / "sim1").write_text("\n".join(line for line in lines if line not in other), encoding="utf-8")
    for monotonic, wall in ((3600, 0), (-1000, 0), (0, 86400), (77, -0.5)):
        (tmp_path / "sim2").write_text("\n".join(shifted(line, monotonic, wall) for line in other), encoding="utf-8")
        assert_tells_of_one_restart(trace_order(str(tmp_path / "sim1"), str(tmp_path / "sim2")))


def test_trace_has_only_the_parts_that_are_asked_for():
    assert "trace:" not in run(*NODES, "true").err
    machine = run(*NODES, "--trace=machine", "true").err
    assert " machine=agent " in machine and " machine=daemon " in machine and " link=" not in machine
    link = run(*NODES, "true", env=clean_env(DDRUN_TRACE="link")).err
    assert " link=agent " in link and " link=daemon " in link and " machine=" not in link


@pytest.mark.parametrize("value", ["x", "machine,x", "machine;link", "all"])
def test_unknown_part_of_the_trace_is_refused(value):
    job = run("true", env=clean_env(DDRUN_TRACE=value))
    assert job.p.returncode == 2
    assert value in job.err and "DDRUN_TRACE" in job.err and "machine" in job.err and told(job.err).count("\n") == 1


def test_trace_order_without_a_trace_reports_it():
    p = subprocess.run([sys.executable, TRACE_ORDER, "/dev/null"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 1 and "DDRUN_TRACE" in p.stderr
    p = subprocess.run([sys.executable, TRACE_ORDER, "/nonexistent/x"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 2 and "/nonexistent/x" in p.stderr


def test_trace_order_skips_lines_that_are_cut_or_forged(tmp_path):
    job = run(*NODES, "sh", "-c", RESTARTS_ONCE, env=clean_env(DDRUN_TRACE="machine,link"))
    line = next(line for line in job.err.splitlines() if " machine=agent " in line and " on=plan " in line)
    cut = line[:line.index(" to=")]
    forged = [line.replace("from=", "from=\033[2J"), line + " t=1.2.3", line.replace(" round=", " rund=")]
    assert_tells_of_one_restart(trace_order(stdin="\n".join([cut, *forged, job.err])))
