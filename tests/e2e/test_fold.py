"""--fold: equal lines of a node's workers are written once, with their ranks; nothing is lost or reordered."""

import glob
import re

import pytest

from support import run
from test_terminal import Terminal

WORKERS, LINES = 8, 300

# Each rank writes the same lines at the same time, as far as the machine lets it: all wait until each has made its file.
WORKER = f"""
import glob, os, sys, time
rank, there = int(os.environ["RANK"]), os.path.dirname(os.path.abspath(__file__))
open(os.path.join(there, "ready" + str(rank)), "w").close()
while len(glob.glob(os.path.join(there, "ready*"))) < {WORKERS}:
    time.sleep(0.01)
for i in range({LINES}):
    print("step", i, flush=True)
    if i % 50 == rank:
        print("only here", rank, flush=True)
print("loss", 2.25 + rank / 100, file=sys.stderr, flush=True)
"""


@pytest.fixture
def worker(tmp_path):
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return str(path)


def ranks_of(text):
    return {r for part in text.split(",") for a, b in [(part + "-" + part).split("-")[:2]] for r in range(int(a), int(b) + 1)}


def unfold(text):
    """Return for each rank the first word of each of its lines."""
    words = {r: [] for r in range(WORKERS)}
    for line in text.splitlines():
        ranks, word = re.match(r"\[([\d,-]+)\] (\w+)", line).groups()
        for r in ranks_of(ranks):
            words[r].append(word)
    return words


def expected(rank):
    return [word for i in range(LINES) for word in ["step"] + ["only"] * (i % 50 == rank)]


def check(out):
    """Every line of every rank is there, in its order, and lines were folded."""
    for rank, words in unfold(out).items():
        assert words == expected(rank), rank
    assert len(out.splitlines()) < WORKERS * LINES / 2, out[:2000]


def test_equal_lines_are_written_once_and_the_logs_have_all(worker, tmp_path):
    job = run(f"--nproc-per-node={WORKERS}", "--fold", f"--log-dir={tmp_path}/logs", worker)
    assert job.p.returncode == 0, job.err
    check(job.out)
    losses = re.findall(r"^\[([\d,-]+)\] loss 2\.\d+(?:…2\.\d+)?$", job.err, re.M)
    assert sorted(r for x in losses for r in ranks_of(x)) == list(range(WORKERS)), job.err
    for rank in range(WORKERS):
        path, = glob.glob(f"{tmp_path}/logs/*/attempt_0/{rank}/stdout.log")
        with open(path, encoding="ascii") as f:
            assert len(f.readlines()) == len(expected(rank))


def test_a_failure_is_reported_after_the_folded_lines(worker, tmp_path):
    with open(worker, "a", encoding="ascii") as f:
        f.write("print('end', flush=True); sys.exit(3 if rank == 5 else 0)\n")
    job = run(f"--nproc-per-node={WORKERS}", "--fold", worker)
    assert job.p.returncode == 3, job.err
    assert re.search(r"^\[[\d,-]*\b5\b.*\] end$|^\[[\d,-]+\] end$", job.out, re.M), job.out[-300:]
    assert "error: rank 5 on " in job.err, job.err


def test_rank_0_is_folded_on_a_terminal_too(worker):
    with Terminal(f"--nproc-per-node={WORKERS}", "--fold", worker) as t:
        assert t.wait() == 0, t.seen
        assert re.search(r"\[0-7\] step|\[[\d,-]+\] step", t.seen), t.seen[:2000]
        lines = [line for line in re.split(r"[\r\n]+", t.seen) if re.match(r"\[[\d,-]+\] (step|only)", line)]
    check("\n".join(lines))


def test_fold_and_raw_output_exclude_each_other():
    job = run("--fold", "--output=raw", "true")
    assert (job.p.returncode, job.out) == (2, "") and "--fold and --output=raw are mutually exclusive" in job.err
