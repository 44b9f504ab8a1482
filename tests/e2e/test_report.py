"""The report of a failed job: the first failure, its output, and the fate of the other ranks; as text and as JSON."""

import json
import os
import re
import subprocess
import sys

import pytest

from support import BUILD, DDRUN, LIMIT, clean_env, program, run, some_line

RECORDED = program("recorded.py")


def block(job):
    """Return the lines of the report, the first without its label."""
    lines = job.err.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"ddrun(\[sim\d+\])?: error: rank ", line))
    rest = [line for line in lines[start + 1:] if line.startswith("  ")]
    return [lines[start].split("error: ", 1)[1], *rest]


def test_the_exception_that_a_worker_recorded_is_shown(tmp_path):
    folder, ranks = tmp_path / "report", tmp_path / "ranks"
    path = folder / "report.json"
    folder.mkdir()
    ranks.mkdir()
    job = run("--simulate-nodes=2", "--nproc-per-node=2", f"--report={path}", RECORDED, "2", str(ranks))
    assert job.p.returncode == 1, job.err
    lines = block(job)
    assert lines[0] == "rank 2 on sim2 failed: ValueError: boom of rank 2 (exit code 1)"
    text = "\n".join(lines)
    assert "second line" in text and "raise ValueError" in text and "recorded.py" in text
    assert "errors/__init__.py" not in text, "the decorator's own frame is of no use"
    assert re.search("others: 1 .* 0, 2 were stopped", text)
    assert len(lines) <= 15 and max(map(len, lines)) <= 110, text
    report = json.loads(path.read_text())
    assert (report["ok"], report["code"], report["world_size"]) == (False, 1, 4)
    first = report["others"].pop("first_ended_with_0")
    assert (first["rank"], first["node"]) in [(0, "sim1"), (1, "sim1"), (3, "sim2")] and 0 < first["at"] <= report["ended"]
    assert report["others"] == {"ended_with_0": 1, "stopped": 2, "killed": 0, "failed_earlier": 0, "failed_later": 0}
    failure, = report["failures"]
    assert (failure["rank"], failure["node"], failure["exception"]) == (2, "sim2", "ValueError")
    assert failure["message"] == "ValueError: boom of rank 2\nsecond line"
    assert 0 < report["rounds"][0]["started"] < failure["at"] <= report["ended"]
    assert os.listdir(folder) == ["report.json"], "a draft was left"


def test_last_lines_and_the_file_of_the_rank_that_failed(tmp_path):
    script = "for i in $(seq 30); do echo line $i >&2; done; [ $RANK = 1 ] && exit 5; sleep 600"
    job = run("--nproc-per-node=2", f"--log-dir={tmp_path}", "-t", "3", "sh", "-c", script)
    assert job.p.returncode == 5, job.err
    lines = block(job)
    assert [line.strip() for line in lines if line.startswith("    line")] == [f"line {i}" for i in range(11, 31)]
    log, = re.findall(r"complete stderr: (\S+)", "\n".join(lines))
    with open(log, encoding="ascii") as f:
        assert f.read().splitlines()[-1] == "line 30"


@pytest.mark.parametrize("code, says, advice", [
    ("import os; os.abort()", "was killed by signal 6 (SIGABRT)", "core dump"),
    ("import ctypes; ctypes.string_at(0)", "was killed by signal 11 (SIGSEGV)", "PYTHONFAULTHANDLER"),
    ("import nosuchmodule_of_ours", "failed: ModuleNotFoundError: No module named 'nosuchmodule_of_ours' (exit code 1)", "PYTHON_EXEC"),
    ("raise RuntimeError('x' * 5000)", "failed: RuntimeError: xxx", None),
])
def test_report_ends_with_a_tip_where_the_cause_is_known(tmp_path, code, says, advice):
    script = tmp_path / "program.py"
    script.write_text(code)
    job = run("--label", str(script))
    lines = block(job)
    assert lines[0].startswith("rank 0 on ") and says in lines[0], job.err
    assert len(lines[0]) < 300
    told = [line for line in lines if line.startswith("  tip: ")]
    assert (advice in told[0]) if advice else told == [], job.err


def test_who_fails_because_of_another_is_told_below_it(tmp_path):
    """Rank 1 fails because rank 2 has failed: the report has both, and the exit code is that of rank 2, which has been reaped."""
    script = f"""
case $RANK in
2) until [ -e {tmp_path}/deaf ]; do sleep 0.05; done; echo $$$$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exit 7;;
1) trap '' TERM; : > {tmp_path}/deaf; until [ -e {tmp_path}/pid ]; do sleep 0.05; done
   while [ -e /proc/$(cat {tmp_path}/pid) ]; do sleep 0.05; done; echo 'RuntimeError: Connection closed by peer' >&2; exit 9;;
*) sleep 600;;
esac"""
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--label", "sh", "-c", script)
    assert job.p.returncode == 7, job.err
    lines = block(job)
    assert lines[0] == "rank 2 on sim2 failed (exit code 7)"
    later = next(i for i, line in enumerate(lines) if line.endswith("1 failed later:"))
    assert "rank 1 on sim1 failed: RuntimeError: Connection closed by peer (exit code 9)" in lines[later + 1]


def test_a_program_that_cannot_be_started_is_said_once(tmp_path):
    program_ = tmp_path / "program"
    program_.write_text("#!/nonexistent/interpreter\n")
    program_.chmod(0o755)
    job = run("--simulate-nodes=2", str(program_))
    assert job.p.returncode == 127, job.err
    lines = block(job)
    assert re.match(r"rank \d on sim\d .*'.*program'.* interpreter", lines[0]), job.err
    assert job.err.count("error:") == 1, job.err


def test_every_restart_is_one_line_that_says_why(tmp_path):
    path = tmp_path / "report.json"
    script = 'test $TORCHELASTIC_RESTART_COUNT = 2 && exit 0; echo "KeyError: $TORCHELASTIC_RESTART_COUNT" >&2; exit 3'
    job = run("--label", "--max-restarts=3", f"--report={path}", "sh", "-c", script)
    assert job.p.returncode == 0, job.err
    told = [line for line in job.err.splitlines() if "restarting" in line]
    assert len(told) == 2
    assert some_line(told[0], "failed: KeyError: 0 (exit code 3)", "1 of 3")
    report = json.loads(path.read_text())
    assert (report["ok"], report["code"], report["restarts"], report["cause"]) == (True, 0, 2, None)
    assert [("KeyError: 1" in (r["cause"] or "")) for r in report["rounds"]] == [False, True, False]


def test_a_worker_may_leave_anything_as_its_error_file():
    for what in ("rm -f $TORCHELASTIC_ERROR_FILE", "echo nonsense > $TORCHELASTIC_ERROR_FILE",
                 "head -c 5000000 /dev/zero > $TORCHELASTIC_ERROR_FILE",
                 """printf '{"message":"a\\\\u0007\\\\ud83d\\\\ude00","timestamp":1}' > $TORCHELASTIC_ERROR_FILE"""):
        job = run("sh", "-c", what + "; exit 3")
        assert job.p.returncode == 3, job.err
        assert "(exit code 3)" in job.err


def test_a_fifo_in_the_place_of_an_error_file_keeps_nobody_waiting(tmp_path):
    fifo = "rm -f $TORCHELASTIC_ERROR_FILE; mkfifo $TORCHELASTIC_ERROR_FILE; exit 3"
    assert run(f"--log-dir={tmp_path}/logs", "sh", "-c", fifo).p.returncode == 3


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    job = run(f"--report={tmp_path}/none/report.json", "true")
    assert job.p.returncode == 2 and "--report" in job.err and f"{tmp_path}/none" in job.err


# --- ddctl report ---

def ddctl_report(*args):
    return subprocess.run([os.path.join(BUILD, "ddctl"), "report", *args], env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=LIMIT, check=False)


@pytest.mark.parametrize("script", [
    "echo \"KeyError: $RANK\" >&2; exit 3",
    "test $RANK = 2 && { seq 30; exit 5; }; exec sleep 600",
    "test $RANK != 1 || kill -9 $$$$; exec sleep 600",
])
def test_an_old_report_is_printed_as_on_the_terminal(tmp_path, script):
    path = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", "--label", f"--report={path}", "sh", "-c", script)
    p = ddctl_report(str(path))
    assert (p.returncode, p.stderr) == (0, ""), p.stderr
    about, attempt, first, *rest = p.stdout.splitlines()
    assert re.match(r"job \S+: 2 nodes, 4 workers, started \S+Z, failed after [\d.]+ s, 1 restart$", about)
    assert re.match(r"round 0 ended after [\d.]+ s: rank \d on sim\d ", attempt)
    assert [first.split("error: ", 1)[1], *rest] == block(job)


def test_ddctl_report_refuses_what_is_no_report(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("{}")
    for args in ([str(path)], [str(tmp_path / "none")], ["/dev/zero"], [], [str(path), str(path)]):
        p = ddctl_report(*args)
        assert (p.returncode, p.stdout) == (2, "") and p.stderr.startswith("ddctl report: error: "), p.stderr
        assert re.fullmatch(r"[^\n]+\n(  tip: [^\n]+\n)?", p.stderr), p.stderr


def test_a_report_and_a_timeline_are_told_apart(tmp_path):
    report, timeline = tmp_path / "r.json", tmp_path / "t.json"
    missing = ddctl_report(str(report)).stderr
    assert f"'{report}'" in missing and "\n  tip: 'ddrun --report=FILE' writes the file when the job ends\n" in missing
    assert run(f"--report={report}", f"--timeline={timeline}", "true").p.returncode == 0
    err = ddctl_report(str(timeline)).stderr
    assert f"error: '{timeline}' is a timeline, not a report\n  tip: 'ddctl timeline {timeline}'" in err
    p = subprocess.run([os.path.join(BUILD, "ddctl"), "timeline", str(report)], env=clean_env(), capture_output=True, text=True,
                       timeout=LIMIT, check=False)
    assert f"error: '{report}' is a report, not a timeline\n  tip: 'ddctl report {report}'" in p.stderr and p.returncode == 2


# --- memory ---

def test_a_worker_that_the_kernel_killed_for_memory_is_told_apart(small_memory, tmp_path):
    script = tmp_path / "eat.py"
    script.write_text("import os\nif os.environ['RANK'] == '1':\n    x = []\n    while True:\n        x.append(bytearray(1 << 20))\n"
                      "import time; time.sleep(600)\n")
    p = subprocess.run([*small_memory(48), DDRUN, "--nproc-per-node=2", str(script)],
                       env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 137, p.stderr
    assert "rank 1 on " in p.stderr and some_line(p.stderr, "SIGKILL", "out of memory"), p.stderr
    assert "--mem" in p.stderr


LOSES_A_PEER = """
import os, sys, time
rank, place = int(os.environ["RANK"]), sys.argv[1]
if rank == 1:
    with open(f"{place}/draft", "w") as f:
        f.write(str(os.getpid()))
    os.rename(f"{place}/draft", f"{place}/pid")
    sys.exit(0)
if rank == 0:
    while not os.path.exists(f"{place}/pid") or os.path.exists(f"/proc/{open(f'{place}/pid').read()}"):
        time.sleep(0.01)
    raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:5")
time.sleep(600)
"""


def test_a_rank_that_exited_with_0_too_early_is_the_culprit(tmp_path):
    """The others lose their peer: none of them has failed by itself."""
    path = tmp_path / "report.json"
    job = run("--simulate-nodes=3", "--nproc-per-node=1", f"--report={path}", "--no-python", sys.executable, "-c", LOSES_A_PEER, str(tmp_path))
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "culprit: rank 1 on sim2,", "exited with 0"), job.err
    assert some_line(job.err, "cause: a rank exited with 0 "), job.err
    culprit = json.loads(path.read_text())["culprit"]
    assert (culprit["rank"], culprit["ranks"], culprit["node"], culprit["blame"]) == (1, "1", "sim2", "worker"), culprit
