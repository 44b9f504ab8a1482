"""--hang-timeout: ddrun finds the workers that hang, and no others."""

import json
import os
import re
import select
import signal
import subprocess
import sys

import pytest

from support import Job, clean_env, lines_with, parent, program, run, some_line, told, until

NODES = ["--simulate-nodes=2", "--nproc-per-node=2", "--shutdown-timeout=2s"]
SOON = "--hang-timeout=20s"


def hang(*options, how="output", **env):
    return run(*NODES, SOON, "--hang-sign=any", *options, program("hang.py"), how, env=clean_env(**env))


@pytest.mark.parametrize("how, sign, says", [
    ("output", "output", "no output"),
    ("file", "file", "no heartbeat"),
    ("output", "any", "no output or heartbeat"), ("file", "any", "no output or heartbeat"),
])
def test_a_rank_that_does_nothing_is_named_and_ended_with_its_python_stack(how, sign, says):
    job = hang(f"--hang-sign={sign}", how=how)
    assert job.p.returncode == 134, job.err
    said = [line for line in job.err.splitlines() if " seems hung: " in line]
    assert len(said) == 1 and says in said[0], job.err
    assert re.search(r"rank 1 on sim1 seems hung: .* for \d+ s \(local rank 1, pid \d+, state S", said[0])
    assert "in wait_for_ever" in job.err  # faulthandler
    assert some_line(job.err, "error: ", "on sim1", "SIGABRT", "20 s")
    assert re.search(r"tip: rerun with .*--stacks-native", job.err) and "native code" not in job.err


def test_the_last_rank_of_a_job_has_held_up_no_other():
    job = run("--nproc-per-node=3", "--stacks=on-hang", SOON, "--shutdown-timeout=2s", sys.executable, "-c",
              "import os, time; time.sleep(600 if os.environ['RANK'] == '1' else 0)")
    assert some_line(job.err, "culprit: rank 1 on ", "the only rank that had not exited"), job.err
    assert some_line(job.err, "tip: no other rank waited for it"), job.err


def test_a_restart_gives_it_another_try():
    job = hang("--max-restarts=1")
    assert job.p.returncode == 0, job.err
    assert " seems hung: " in job.err and some_line(job.err, "restarting", "1 of 1")


def test_a_worker_that_takes_the_abort_for_a_good_end_has_failed_all_the_same():
    assert hang(how="deaf").p.returncode == 134


def test_a_command_is_run_instead_of_the_abort():
    job = hang("--on-hang=echo rank $DDRUN_HUNG_RANK; tr '\\0' ' ' </proc/$DDRUN_HUNG_PID/cmdline")
    assert job.p.returncode == 137, job.err
    assert some_line(job.err, "rank 1: rank 1") and "hang.py output" in job.err
    assert some_line(job.err, "error: ", "SIGKILL", "20 s") and "OOM killer" not in job.err


def fake_py_spy(tmp_path):
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "asked: $*"\necho "Thread 0x7F (idle)"\n')
    (tmp_path / "py-spy").chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_stacks_are_in_the_report_alone_where_py_spy_is_installed(tmp_path):
    """The report folds them; one output of py-spy for each of a thousand ranks would hide it."""
    job = hang("--stacks=auto", PATH=fake_py_spy(tmp_path))
    assert job.p.returncode == 134, job.err
    assert "asked:" not in job.err and some_line(job.err, "rank 1 on sim1", "wait_for_ever"), job.err


def test_a_command_that_fails_is_told():
    job = hang("--on-hang=exit 5")
    assert job.p.returncode == 137 and some_line(job.err, "--on-hang", "code 5")


TICK = 0.9  # seconds; an agent that looks more than 1 s late assumes that the job was suspended
TICKS = 24  # more than SOON


def keep_pace(clock, place, ranks, steps):
    """Advance the clock by TICK after each sign of all ranks: by more than SOON in total."""
    for n in range(steps):
        until(lambda n=n: len(list(place.glob(f"{n}.*"))) == ranks, say=f"sign {n} of all ranks")
        clock.advance(TICK)
        (place / f"go.{n}").touch()


def paced(clock, place, how, *options, ranks):
    env = clean_env(SIGNS=str(TICKS), RANKS="9", PACE=str(place), **clock.env)
    with Job(*options, program("hang.py"), how, env=env) as job:
        keep_pace(clock, place, ranks, TICKS)
        job.wait()
        job.assert_nothing_left()
        return job


@pytest.mark.parametrize("how, options", [
    ("output", ["--hang-sign=output"]), ("output", ["--hang-sign=output", "--label"]),
    ("output", ["--hang-sign=output", "--local-ranks-filter=7"]), ("file", ["--hang-sign=file"])])
def test_who_gives_signs_lives(how, options, clock, tmp_path):
    job = paced(clock, tmp_path, how, *NODES, SOON, *options, ranks=4)
    said = [line for line in told(job.err).splitlines() if "--local-ranks-filter=7" not in line]
    assert job.p.returncode == 0 and said == [], job.err


def test_output_that_goes_to_files_counts(clock, tmp_path):
    job = paced(clock, tmp_path, "output", SOON, "--redirects=3", f"--log-dir={tmp_path}/logs", ranks=1)
    assert job.p.returncode == 0 and job.err == "", job.err


def test_output_stays_as_it_is():
    job = run("--hang-timeout=1h", "sh", "-c", "echo out; echo err >&2; printf 'no end'")
    assert (job.p.returncode, job.out, job.err) == (0, "out\nno end", "err\n")


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return next(int(word[5:]) for word in f.read().split(b"\0") if word.startswith(b"RANK="))


def later(clock, job, seconds):
    """Advance the clock; return what ddrun then writes to stderr."""
    clock.advance(seconds)
    return os.read(job.p.stderr.fileno(), 65536).decode() if select.select([job.p.stderr], [], [], 0.05)[0] else ""


def hung(clock, job):
    """Advance the clock until ddrun reports the ranks that seem hung; return its stderr."""
    said = ""
    while " hung: " not in said:
        ended = job.p.poll() is not None
        said += later(clock, job, TICK)
        assert not ended or " hung: " in said, said
    return said


def test_time_in_which_the_whole_job_stood_still_does_not_count(clock):
    """As after SIGSTOP: all that the agent observes is that it is late."""
    with Job(SOON, "--hang-sign=any", "sh", "-c", "echo here; sleep 600", env=clean_env(**clock.env)) as job:
        job.line("here")
        for _ in range(10):  # in the first one the agent only sees the sign
            assert " hung: " not in later(clock, job, 100)
        hung(clock, job)


def test_a_worker_that_somebody_holds_does_not_hang(clock, tmp_path):
    """The other worker, whose last sign came later, does."""
    script = f"touch {tmp_path}/here.$RANK; until [ -e {tmp_path}/go.$RANK ]; do sleep 0.01; done; echo again; sleep 600"
    with Job(SOON, "--hang-sign=any", "--nproc-per-node=2", "--shutdown-timeout=1s", "sh", "-c", script,
             env=clean_env(**clock.env)) as job:
        until(lambda: len(list(tmp_path.glob("here.*"))) == 2, say="both workers")
        worker = next(pid for pid in job.workers() if parent(pid) in job.agents() and rank_of(pid) == 0)
        os.kill(worker, signal.SIGSTOP)
        clock.advance(TICK)
        (tmp_path / "go.1").touch()
        job.line("again")
        said = hung(clock, job)
        assert " rank 1 " in said and "rank 0" not in said
        job.wait()


# ---- workers that give no sign themselves: what they use shows whether the job moves ----

PAIR = ["--simulate-nodes=2", "--nproc-per-node=1", "--shutdown-timeout=2s", "--hang-timeout=15s"]
MUCH_LATER = "30"  # seconds: twice --hang-timeout


@pytest.mark.parametrize("sign", ["cpu", "io", "network"])
def test_what_workers_use_shows_that_they_are_active(sign, tmp_path):
    job = run(*PAIR, f"--hang-sign={sign}", program("idle.py"), sign, MUCH_LATER, env=clean_env(PLACE=str(tmp_path)))
    assert job.p.returncode == 0 and " hung: " not in job.err, job.err


def test_a_job_does_not_hang_where_the_network_cannot_be_seen(tmp_path):
    """A container may forbid sock_diag: bytes that cannot be counted are no sign that none are sent."""
    library = tmp_path / "no_sock_diag.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("no_sock_diag.c"), "-ldl"], check=True)
    job = run(*PAIR, "--hang-sign=network", program("idle.py"), "network", MUCH_LATER, env=clean_env(PLACE=str(tmp_path), LD_PRELOAD=str(library)))
    assert job.p.returncode == 0 and " hung: " not in job.err, job.err
    for node in ("sim1", "sim2"):
        assert len(lines_with(job.err, f"[{node}]", "cannot read the bytes of TCP connections")) == 1, job.err


def test_a_job_that_only_computes_does_not_hang():
    job = run(*PAIR, program("idle.py"), "cpu", MUCH_LATER)
    assert job.p.returncode == 0 and " hung: " not in job.err, job.err


def test_a_program_without_mpi_that_computes_does_not_hang_under_mpi():
    job = run("--mpi=auto", *PAIR, program("idle.py"), "cpu", MUCH_LATER)
    assert job.p.returncode == 0 and " hung: " not in job.err, job.err


def test_a_worker_may_wait_for_one_that_computes(tmp_path):
    job = run(*PAIR, program("idle.py"), "wait", MUCH_LATER, env=clean_env(PLACE=str(tmp_path)))
    assert job.p.returncode == 0 and " hung: " not in job.err, job.err


def test_a_job_hangs_when_no_worker_moves(tmp_path):
    report = tmp_path / "report.json"
    job = run(*PAIR, f"--report={report}", program("idle.py"), "stuck", MUCH_LATER, env=clean_env(PLACE=str(tmp_path)))
    assert job.p.returncode == 134 and "computed" in job.out, job.err
    why = "no output, heartbeat, processor time, I/O or network traffic for "
    # the end of the first rank may end the job before the other agent reports its own
    assert any(some_line(job.err, f"rank {rank} on ", f" seems hung: {why}", " % of a CPU", " bytes read or written", " bytes on TCP")
               for rank in "01"), job.err
    with open(report) as f:
        found = json.load(f)
    assert found["failures"][0]["message"] == f"the job hung: {why}15 s" and found["known_cause"] == "hang"


def test_the_hung_ranks_of_a_node_are_one_line():
    job = run("--simulate-nodes=2", "--nproc-per-node=3", "--shutdown-timeout=2s", "--hang-timeout=15s", "sleep", "600")
    assert job.p.returncode == 134, job.err
    said = lines_with(job.err, " on sim", " hung: no output, ", " % of a CPU")
    assert said, job.err
    for line in said:  # the end of one node's ranks may end the job before the other node reports its own
        assert "ranks 0-2 on sim1 seem hung: " in line or "ranks 3-5 on sim2 seem hung: " in line, job.err
    assert len(said) == len({line.split("]")[0] for line in said}), job.err


LATE = """
import os, signal
if os.environ["RANK"] == "1":  # abort at the stop of the round only
    both = {signal.SIGABRT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    while signal.sigwait(both) != signal.SIGTERM:
        pass
    os.abort()
signal.pause()
"""


def test_a_hung_rank_that_ends_late_is_counted_as_hung():
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--hang-timeout=15s", "--no-python", sys.executable, "-c", LATE)
    assert job.p.returncode == 134, job.err
    assert "workers: 2 hung" in job.err and "failed later" not in job.err, job.err


def test_a_rank_that_is_stopped_is_named():
    job = run(*PAIR, program("idle.py"), "stop", MUCH_LATER)
    assert job.p.returncode in (134, 137), job.err
    assert some_line(job.err, "rank 1 on sim2 is stopped by a signal: ", "state T"), job.err
    assert some_line(job.err, "rank 0 on sim1 seems hung: "), job.err


@pytest.mark.parametrize("value", ["", "gpu", "any activity"])
def test_other_signs_are_refused(value):
    job = run("--hang-timeout=1h", f"--hang-sign={value}", "true")
    assert job.p.returncode == 2 and some_line(job.err, "--hang-sign", "expected some of output, file, cpu, io, network, any, activity"), job.err


def test_kill_9_of_the_agent_leaves_no_heartbeat_file():
    with Job(SOON, "--hang-sign=file", program("hang.py"), "output", env=clean_env(RANKS="9", SIGNS="1000")) as job:
        job.line("step")
        os.kill(job.agents()[0], signal.SIGKILL)
        assert job.wait() != 0
        job.assert_nothing_left()
