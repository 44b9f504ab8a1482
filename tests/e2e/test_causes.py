"""The causes that the report names, each produced by a real program, and the culprit among several failures."""

import json
import re
import subprocess

import pytest

from support import clean_env, program, run, some_line, with_frames, with_torch

SHELL = "#!/bin/sh\n"

# What fails; the cause and the tip that the report gives.
CAUSES = [
    ("missing-module", "import nosuchmodule_of_ours", "lacks a module", "PYTHON_EXEC"),
    ("missing-library", "import ctypes; ctypes.CDLL('libnosuch_of_ours.so.7')", "shared library is missing", "LD_LIBRARY_PATH"),
    ("syntax-error", "def f(:\n    pass\n", "syntax error", "py_compile"),
    ("disk-full", "with open('/dev/full', 'w') as f:\n    f.write('x')\n", "file system is full", "df -h"),
    ("port-in-use", "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(a.getsockname())\n", "is in use", "bind port 0"),
    ("too-many-files", "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\nwhile True: os.open('/dev/null', 0)\n",
     "limit of open files", "ulimit -n"),
    ("host-memory", "bytearray(1 << 60)", "a memory allocation", "batch size"),
    ("pickle", "import pickle; pickle.dumps(lambda: 1)", "cannot be pickled", "module"),
    ("connection-refused", "import socket\na = socket.create_server(('127.0.0.1', 0)); n = a.getsockname(); a.close()\nsocket.create_connection(n)\n",
     "no process listens", "listen there"),
    ("nan", "x = float('nan')\nassert x == x, 'loss is nan at step 3'\n", "not a number", "learning rate"),
    ("sigint", "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)", "sent SIGINT", None),
    ("sigkill", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "a process other than ddrun sent SIGKILL", "dmesg"),
    ("sigterm", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "a process other than ddrun sent SIGTERM", "preemption"),
    ("sigsegv", "import ctypes; ctypes.string_at(0)", "invalid address", "PYTHONFAULTHANDLER"),
    ("command-not-found", SHELL + "nosuchcommand_of_ours\n", "was not found on this node", "PATH"),
    ("permission", SHELL + 'printf "#!/bin/sh\\n" > "$0.part"; "$0.part"\n', "may not execute", "chmod +x"),
    ("sigkill", SHELL + "sh -c 'kill -9 $$'\n", "a process other than ddrun sent SIGKILL", "dmesg"),
    (None, "import warnings; warnings.warn('Connection reset by peer'); raise ValueError('boom')", None, None),
]


@pytest.mark.parametrize("known, code, cause, tip", CAUSES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CAUSES)])
def test_the_report_names_the_cause_of_a_real_failure(tmp_path, known, code, cause, tip):
    script = tmp_path / ("program" if code.startswith(SHELL) else "program.py")
    script.write_text(code)
    script.chmod(0o755)
    report = tmp_path / "report.json"
    job = run("--label", f"--report={report}", str(script))
    lines = job.err.splitlines()
    causes = [line for line in lines if line.startswith("  cause: ")]
    tips = [line for line in lines if line.startswith("  tip: ")]
    assert len(causes) == (cause is not None) and len(tips) == (tip is not None), job.err
    assert (cause or "") in "".join(causes) and (tip or "") in "".join(tips), job.err
    found = json.loads(report.read_text())
    assert found["known_cause"] == known and found["failures"][0]["known_cause"] == known
    assert not any(line.startswith("  culprit: ") for line in lines), "there is only one worker"


def test_a_failure_that_follows_from_another_is_not_the_culprit(tmp_path):
    """Rank 1 fails first, because its peer has closed a connection; rank 2 takes longer to end."""
    report = tmp_path / "report.json"
    script = tmp_path / "program"
    script.write_text(f"""#!/bin/sh
case $RANK in
1) echo $$ > {tmp_path}/pid; while [ ! -e {tmp_path}/trapped ]; do sleep 0.05; done
   echo 'RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5' >&2; exit 9;;
2) while [ ! -s {tmp_path}/pid ]; do sleep 0.05; done
   trap '' TERM; : > {tmp_path}/trapped
   while kill -0 $(cat {tmp_path}/pid) 2>&-; do sleep 0.05; done  # until ddrun has taken note of its end
   echo 'ValueError: boom' >&2; exit 7;;
*) exec sleep 600;;
esac
""")
    script.chmod(0o755)
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--label", f"--report={report}", str(script))
    assert job.p.returncode == 7, job.err
    assert some_line(job.err, "error: rank 2 on sim2 failed: ValueError: boom (exit code 7)"), job.err
    assert some_line(job.err, "  culprit: rank 2 on sim2, the first failure that does not follow from a lost or late peer (1 earlier one does)"), job.err
    assert re.search(r"others: .*1 failed earlier:\n +[\d.]+ s earlier rank 1 on sim1 failed: RuntimeError", job.err), job.err
    found = json.loads(report.read_text())
    assert found["culprit"] == {"failure": 1, "rank": 2, "ranks": "2", "node": "sim2", "blame": "worker", "check": None, "why": found["culprit"]["why"]}
    assert [f["cascade"] for f in found["failures"]] == [True, False]
    assert [f["why"] for f in found["failures"]] == ["RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5", "ValueError: boom"]
    assert (found["others"]["failed_earlier"], found["others"]["failed_later"]) == (1, 0)


def test_a_signal_from_outside_blames_neither_rank_nor_node(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import os, time\nos.environ['RANK'] == '2' and os.kill(os.getpid(), 9)\ntime.sleep(600)\n")
    job = run("--simulate-nodes=2", "--nproc-per-node=2", str(script))
    assert job.p.returncode == 137, job.err
    assert some_line(job.err, "  culprit: the sender of the signal, not rank 2 or its node"), job.err


@with_torch
@pytest.mark.parametrize("fault, known, blamed", [
    ("loader", "dataloader-worker-killed", "rank 2 on sim2"),
    ("kill", "sigkill", "the sender of the signal"),
    # a rank that timed out closes its connections; the tracebacks show the collectives, unless ddrun stops a rank before it has printed its own
    ("gather", "gloo-timeout gloo-peer-lost", "(rank 2 on sim2, which waited in all_gather|unknown)"),
])
def test_culprit_of_a_job_of_torch(tmp_path, fault, known, blamed):
    report = tmp_path / "report.json"
    timeout = ["-x", "GLOO_TIMEOUT=10"] if "gloo" in known else []
    job = run("--simulate-nodes=2", "--nproc-per-node=2", f"--report={report}", "-x", f"TMPDIR={tmp_path}", *timeout, program("faulty.py"), fault, "2")
    assert job.p.returncode != 0, job.err
    found = json.loads(report.read_text())
    assert found["known_cause"] in known.split(), job.err
    assert re.search(f"^  culprit: {blamed}", job.err, re.M), job.err


def by_itself(job, report):
    """Return the report and its failures that are no consequence of another one; assert that it blames rank 2 on the second node."""
    found = json.loads(report.read_text())
    culprit = found["culprit"]
    assert (culprit["ranks"], culprit["node"], culprit["blame"]) == ("2", "sim2", "worker"), job.err
    assert some_line(job.err, "  culprit: rank 2 on sim2, "), job.err
    return found, [(f["rank"], f["node"], f["known_cause"]) for f in found["failures"] if not f["cascade"]]


@with_torch
def test_a_rank_that_fills_its_file_system_is_the_culprit(tmp_path, small_disk):
    before, place = small_disk
    report = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", f"--report={report}", "-x", f"TMPDIR={tmp_path}", program("faulty.py"), "full", "2",
              env=clean_env(FULL=place), before=before)
    assert job.p.returncode == 1, job.err
    found, failures = by_itself(job, report)
    assert found["known_cause"] == "disk-full" and failures == [(2, "sim2", "disk-full")], job.err


@with_torch
def test_a_rank_that_exceeds_the_memory_of_its_cgroup_is_the_culprit(tmp_path, small_memory):
    report = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", f"--report={report}", "-x", f"TMPDIR={tmp_path}", program("faulty.py"), "memory", "2",
              before=small_memory(3072))
    assert job.p.returncode == 137, job.err
    found, failures = by_itself(job, report)
    assert found["known_cause"] == "oom-killer" and failures == [(2, "sim2", "oom-killer")], job.err
    assert some_line(job.err, "error: rank 2 on sim2 was killed by signal 9 (SIGKILL): killed by the kernel, out of memory"), job.err


# Stands for PyTorch's module of this name.
COLLECTIVES = """
import os, time

def work(place, rank, fails_after):
    open(os.path.join(place, f"in.{rank}"), "w").close()
    while fails_after is None or not all(os.path.exists(os.path.join(place, name)) for name in fails_after):
        time.sleep(0.05)
    raise RuntimeError("[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete")

def all_reduce(place, rank, fails_after):
    work(place, rank, fails_after)

def all_gather(place, rank, fails_after):
    work(place, rank, fails_after)
"""


@with_frames
@pytest.mark.parametrize("how", ["ended", "ending"])
def test_the_rank_in_another_collective_is_the_culprit_where_a_timeout_ends_others(tmp_path, how):
    """The traceback of a rank that has ended, or whose Python has, shows in which collective it was."""
    module = tmp_path / "site-packages/torch/distributed/distributed_c10d.py"
    module.parent.mkdir(parents=True)
    module.write_text(COLLECTIVES)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "held_exit.so", program("held_exit.c")], check=True)
    report = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--stacks-timeout=120s", "--shutdown-timeout=2s", f"--report={report}",
              program("timed_out.py"), str(tmp_path), how, env=clean_env(DDRUN_STACKS="auto", HELD=str(tmp_path / "held")))
    assert job.p.returncode == 1, job.err
    said = r"which waited in all_gather, timed_out\.py:\d+, while ranks 0-1,3 waited in all_reduce, timed_out\.py:\d+$"
    assert re.search(rf"^  culprit: rank 2 on sim2, {said}", job.err, re.M), job.err
    found = json.loads(report.read_text())
    assert (found["culprit"]["ranks"], found["culprit"]["node"], found["culprit"]["blame"]) == ("2", "sim2", "worker"), job.err
    assert found["known_cause"] == "gloo-timeout" and [f["rank"] for f in found["failures"]] == [0], job.err


def hung(tmp_path, fault, *options):
    """Run a job of torch whose rank 2 makes the others wait for ever; return stderr and the report."""
    report = tmp_path / "report.json"
    job = run("--hang-timeout=10s", "--shutdown-timeout=2s", "--stacks-timeout=120s", f"--report={report}", "-x", f"TMPDIR={tmp_path}", *options,
              program("faulty.py"), fault, "2", env=clean_env(DDRUN_STACKS="auto"))
    assert job.p.returncode in (134, 137), job.err
    return job.err, json.loads(report.read_text())


@with_torch
@with_frames
def test_the_rank_that_waits_in_another_collective_is_the_culprit(tmp_path):
    """With all_gather in place of broadcast: test_planted_slurm.py."""
    err, found = hung(tmp_path, "broadcast", "--simulate-nodes=2", "--nproc-per-node=2")
    said = r"which waits in broadcast, faulty\.py:\d+, while ranks 0-1,3 wait in all_reduce, faulty\.py:\d+$"
    assert re.search(rf"^  culprit: rank 2 on \S+, {said}", err, re.M), err
    assert found["culprit"]["ranks"] == "2" and found["culprit"]["blame"] == "worker", err
    assert found["culprit"]["node"] == found["stacks"]["nodes"][-1]["name"], err


@with_torch
@with_frames
def test_the_rank_that_waits_for_its_dataloader_is_the_culprit(tmp_path):
    """On several nodes: test_planted_slurm.py."""
    err, found = hung(tmp_path, "stuck-loader", "--nproc-per-node=3")
    said = r"which waits for a DataLoader process, faulty\.py:\d+, while ranks 0-1 wait in all_reduce, faulty\.py:\d+$"
    assert re.search(rf"^  culprit: rank 2 on \S+, {said}", err, re.M), err
    assert some_line(err, "  cause: a process of a DataLoader delivers no batch") and some_line(err, "  tip: ", "num_workers=0"), err
    assert found["known_cause"] == "dataloader-worker-stuck" and found["culprit"]["ranks"] == "2", err
    assert found["culprit"]["node"] == found["stacks"]["nodes"][-1]["name"], err
