"""--stacks and ddctl stacks: what all workers were executing at the first failure."""

import ctypes
import json
import os
import platform
import re
import shutil
import signal
import subprocess

import pytest

from support import BUILD, LIMIT, PYTHON, Job, answered, clean_env, program, run, some_line, until, with_frames, with_torch
from test_hang import hung

PY_SPY = os.path.join(os.path.dirname(PYTHON), "py-spy")
SLOW = "--stacks-timeout=120s"  # only ends a hang: a busy machine needs seconds for py-spy
DDCTL = os.path.join(BUILD, "ddctl")


def _py_spy_reads():
    """Return why py-spy cannot read another process here; "": it can."""
    if not os.access(PY_SPY, os.X_OK):
        return "py-spy is not installed beside the tests' Python (pip package py-spy)"
    child = subprocess.Popen([PYTHON, "-c", "import time; print(1, flush=True); time.sleep(1000)"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        p = subprocess.run([PY_SPY, "dump", "--json", "--nonblocking", "--pid", str(child.pid)], capture_output=True, text=True,
                           timeout=LIMIT)
        return "" if p.returncode == 0 else f"py-spy cannot read another process here: {p.stderr.strip()[:200]}"
    finally:
        child.kill()
        child.wait()


def _no_page_faults():
    """Return why a process cannot let those who read its memory wait (userfaultfd); "": it can."""
    number = {"x86_64": 323, "aarch64": 282}.get(platform.machine())
    fd = ctypes.CDLL(None).syscall(number, os.O_CLOEXEC) if number else -1
    if fd < 0:
        return "userfaultfd is not permitted here"
    os.close(fd)
    return ""


WHY_NOT_PY_SPY = _py_spy_reads()
with_py_spy = pytest.mark.skipif(WHY_NOT_PY_SPY != "", reason=WHY_NOT_PY_SPY)


def env(**more):
    return clean_env(**{"DDRUN_STACKS": "on-failure", **more})


def stacks_of(path):
    with open(path) as f:
        return json.load(f)["stacks"]


def groups(stacks):
    """Return {ranks: group}."""
    return {g["ranks"]: g for g in stacks["groups"]}


def sleeps(place, rank):
    """True if this rank of programs/stacks.py has left ready() and sleeps."""
    try:
        pid = int((place / f"ready-{rank}").read_text())
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "S"
    except (FileNotFoundError, ValueError):
        return False


def worker(place, fails, *what):
    return [PYTHON, program("stacks.py"), str(place), str(fails), *what]


@with_frames
def test_an_exception_shows_what_all_other_ranks_were_executing(tmp_path):
    report = tmp_path / "report.json"
    job = run("--nproc-per-node=8", SLOW, f"--report={report}", *worker(tmp_path, 1, "2:read_data"), env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 1 on ", "ValueError: boom")
    lines = job.err.splitlines()
    rare = [i for i, line in enumerate(lines) if re.search(r"rank 2: read_data, stacks\.py:\d+$", line)]
    usual = [i for i, line in enumerate(lines) if re.search(r"ranks 0,3-7: train_step, stacks\.py:\d+$", line)]
    assert len(rare) == 1 and len(usual) == 1 and rare < usual, job.err
    found = groups(stacks_of(report))
    assert found["2"]["kind"] == "python"
    assert [f["function"] for f in found["2"]["frames"]] == ["read_data", "<module>"]
    assert found["2"]["frames"][0]["file"].endswith("/programs/stacks.py")
    assert found["1"]["kind"] == "ended"


@with_frames
def test_nodes_answer_for_their_own_ranks(tmp_path):
    report = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", SLOW, f"--report={report}", *worker(tmp_path, 0, "3:read_data"),
              env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 3 on sim2: read_data, stacks.py:"), job.err
    stacks = stacks_of(report)
    assert [(n["name"], n["first_rank"], n["workers"]) for n in stacks["nodes"]] == [("sim1", 0, 2), ("sim2", 2, 2)]
    assert {r: g["headline"].split(",")[0] for r, g in groups(stacks).items()} == {
        "3": "read_data", "1-2": "train_step", "0": "had ended"}


@with_frames
def test_each_node_writes_all_frames_to_its_log_directory(tmp_path):
    logs = tmp_path / "logs"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", SLOW, f"--log-dir={logs}", *worker(tmp_path, 0, "3:read_data"),
              env=env())
    assert job.p.returncode == 1, job.err
    texts = sorted(path.read_text() for path in logs.glob("*/attempt_0/stacks.txt"))
    assert len(texts) == 2, list(logs.glob("**/*"))
    assert re.match(r"rank 1: train_step, stacks\.py:\d+\n    train_step \(/.*\n    <module> \(/.*\nrank 0: had ended\n$", texts[0])
    assert re.search(r"^rank 3: read_data, ", texts[1], re.M) and re.search(r"^rank 2: train_step, ", texts[1], re.M)


@with_frames
def test_a_stopped_rank_is_marked(tmp_path):
    report = tmp_path / "report.json"
    (tmp_path / "wait").touch()
    with Job("--nproc-per-node=3", SLOW, f"--report={report}", *worker(tmp_path, 0), env=env()) as job:
        until(lambda: (tmp_path / "ready-0").exists())  # which rank 0 makes last
        victim = next(pid for pid in job.workers() if b"\0RANK=2\0" in open(f"/proc/{pid}/environ", "rb").read())
        os.kill(victim, signal.SIGSTOP)
        until(lambda: re.search(r"^State:\s+T", open(f"/proc/{victim}/status").read(), re.M))
        (tmp_path / "wait").unlink()
        assert job.wait() == 1, job.err
        job.assert_nothing_left()
    found = groups(stacks_of(report))
    assert "stopped" in found["2"]["state"] and found["1"]["state"] == ""
    assert found["2"]["headline"].startswith("train_step, stacks.py:")


@with_frames
def test_a_hung_rank_is_read_before_it_is_ended(tmp_path, clock):
    report = tmp_path / "report.json"
    with Job("--nproc-per-node=2", SLOW, "--hang-timeout=30s", "--heartbeat=1h", "--shutdown-timeout=2s", f"--report={report}",
             *worker(tmp_path, -1, "1:read_data"), env=env(DDRUN_STACKS="on-hang", **clock.env)) as job:
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(2)))
        hung(clock, job)
        assert job.wait() in (134, 137), job.err
        job.assert_nothing_left()
    found = {g["headline"].split(",")[0]: g["ranks"] for g in stacks_of(report)["groups"]}
    assert found == {"train_step": "0", "read_data": "1"}, job.err


@with_frames
@pytest.mark.parametrize("when", ["auto", "on-failure"])
def test_frames_are_read_without_py_spy(tmp_path, when):
    job = run("--nproc-per-node=3", SLOW, "--py-spy=none", *worker(tmp_path, 1, "2:read_data"), env=env(DDRUN_STACKS=when))
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 0: train_step, stacks.py:") and some_line(job.err, "rank 2: read_data, stacks.py:"), job.err


@with_py_spy
@with_frames
def test_py_spy_reads_the_same_frames(tmp_path):
    found = []
    for option in ("--py-spy=none", f"--py-spy={PY_SPY}"):
        for path in tmp_path.glob("ready-*"):
            path.unlink()
        report = tmp_path / "report.json"
        job = run("--nproc-per-node=3", SLOW, option, f"--report={report}", *worker(tmp_path, 1, "2:read_data"), env=env())
        assert job.p.returncode == 1, job.err
        found.append({r: (g["kind"], g["frames"]) for r, g in groups(stacks_of(report)).items()})
    assert found[0] == found[1] and found[0]["2"][0] == "python", found


def no_ptrace():
    """Return a command prefix for an agent that is no superuser to its workers, or skip."""
    if os.getuid() == 0 and subprocess.run(["setpriv", "--bounding-set=-sys_ptrace", "true"], capture_output=True).returncode != 0:
        pytest.skip("setpriv cannot drop CAP_SYS_PTRACE")
    return ["setpriv", "--bounding-set=-sys_ptrace"] if os.getuid() == 0 else []


@with_frames
def test_a_rank_that_may_not_be_read_is_reported(tmp_path):
    with Job("--nproc-per-node=3", SLOW, "--py-spy=none", *worker(tmp_path, 1, "2:unreadable"), env=env(DDRUN_STACKS="auto"),
             before=no_ptrace()) as job:
        assert job.wait() == 1, job.err
        assert some_line(job.err, "rank 2: state ", "(reading its memory is not permitted)"), job.err
        assert some_line(job.err, "rank 0: train_step, stacks.py:"), job.err
        job.assert_nothing_left()


@with_frames
@pytest.mark.parametrize("what", ["wait_for_child", "wait_for_spawned", "wait_for_forkserver"])
def test_the_process_that_a_rank_waits_for_is_shown(tmp_path, what):
    report = tmp_path / "report.json"
    with Job("--nproc-per-node=3", SLOW, f"--report={report}", *worker(tmp_path, 1, f"2:{what}"), env=env(DDRUN_STACKS="auto")) as job:
        assert job.wait() == 1, job.err  # multiprocessing leaves a directory where its parent is killed
    assert re.search(r"^    rank 2: get, stacks\.py:\d+$", job.err, re.M), job.err
    pid = int((tmp_path / "child-2").read_text())
    lines = re.findall(r"^    (rank.*, child process.*)$", job.err, re.M)
    assert len(lines) == 1 and re.fullmatch(rf"rank 2, child process {pid}: read_sample, stacks\.py:\d+", lines[0]), job.err
    child, = stacks_of(report)["children"]
    assert (child["ranks"], child["processes"], child["pid"], child["kind"], child["dataloader"]) == ("2", 1, pid, "python", False)
    assert [f["function"] for f in child["frames"]] == ["read_sample", "run", "_bootstrap"], "not those of its parent"
    p = subprocess.run([DDCTL, "report", report], env=clean_env(), capture_output=True, text=True, timeout=LIMIT)
    assert f"    {lines[0]}" in p.stdout.splitlines(), p.stdout


@with_torch
@with_frames
def test_processes_of_a_dataloader_are_shown(tmp_path):
    with Job("--nproc-per-node=2", *worker(tmp_path, -1, "1:load_data"), env=env()) as job:
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(2)))
        seen = until(lambda: re.search(r"^rank 1, 2 DataLoader processes: read_sample, stacks\.py:\d+\n    read_sample \(/", ddctl(*of(job)).stdout, re.M))
        assert seen
        job.p.terminate()
        job.wait()


@pytest.fixture
def yama(tmp_path):
    """Return a function: the environment of a kernel with this kernel.yama.ptrace_scope, without CAP_SYS_PTRACE."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the library that forbids reading memory")
    library = tmp_path / "yama.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("yama.c"), "-ldl"], check=True)

    def scope(n):
        place = tmp_path / "yama"
        place.mkdir()
        (place / "scope").write_text(f"{n}\n")
        return {"LD_PRELOAD": str(library), "YAMA_SCOPE": str(n), "YAMA_PLACE": str(place)}

    return scope


@with_frames
@pytest.mark.parametrize("scope", [2, 3])
def test_yama_that_forbids_to_read_workers_is_reported(tmp_path, yama, scope):
    report = tmp_path / "report.json"
    job = run("--nproc-per-node=3", SLOW, "--py-spy=none", f"--report={report}", *worker(tmp_path, 1),
              env=env(DDRUN_STACKS="auto", **yama(scope)))
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 1 on ", "ValueError: boom"), job.err
    found = groups(stacks_of(report))
    assert {g["note"] for r, g in found.items() if r != "1"} == {f"reading its memory is not permitted: kernel.yama.ptrace_scope is {scope}"}
    tips = [line for line in job.err.splitlines() if line.startswith("  tip: ")]
    assert some_line(job.err, "rank", "state ", "(reading its memory is not permitted"), job.err
    assert len(tips) == 1 and "kernel.yama.ptrace_scope" in tips[0] and f"is {scope}" in tips[0], job.err
    assert "CAP_SYS_PTRACE" in tips[0] or scope == 3, "3 leaves no process this right"
    p = subprocess.run([DDCTL, "report", report], env=clean_env(), capture_output=True, text=True, timeout=LIMIT)
    assert tips[0] in p.stdout.splitlines(), p.stdout


@with_frames
def test_ddctl_says_how_to_read_what_yama_forbids(tmp_path, yama):
    with Job("--nproc-per-node=2", *worker(tmp_path, -1), env=env(**yama(2))) as job:
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(2)))
        p = ddctl(*of(job))
        assert p.returncode == 0 and some_line(p.stdout, "ranks 0-1: ", "reading its memory is not permitted"), p.stdout
        assert some_line(p.stderr, "tip: ", "kernel.yama.ptrace_scope", "CAP_SYS_PTRACE"), p.stderr
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]
YAMA_1 = {
    "executed": ([], []),
    "forked by --warm": (["--warm=json"], []),
    "started by a script": (["--no-python"], SHELL),
    "started under --wrap": (["--wrap=0-2:" + """sh -c '"$@"; exit $?' sh"""], []),
    "in a container": (["--no-python"], ["bwrap", "--unshare-user", "--dev-bind", "/", "/"]),
}


@with_frames
@pytest.mark.parametrize("how", YAMA_1)
def test_yama_1_permits_the_agent_to_read_its_descendants(tmp_path, yama, how):
    options, before = YAMA_1[how]
    if before[:1] == ["bwrap"] and (shutil.which("bwrap") is None or subprocess.run([*before, "true"], check=False).returncode != 0):
        pytest.skip("bwrap makes no container here")
    words = worker(tmp_path, 1, "2:read_data")
    job = run("--nproc-per-node=3", SLOW, "--py-spy=none", *options, *before, *(words[1:] if "--warm=json" in options else words),
              env=env(DDRUN_STACKS="auto", XDG_CACHE_HOME=str(tmp_path), **yama(1)))
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 0: train_step, stacks.py:") and some_line(job.err, "rank 2: read_data, stacks.py:"), job.err
    assert "ptrace_scope" not in job.err, job.err


@with_frames
def test_yama_1_permits_the_agent_to_read_children_of_workers(tmp_path, yama):
    job = run("--nproc-per-node=2", SLOW, *worker(tmp_path, 0, "1:wait_for_child"), env=env(**yama(1)))
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 1, child process ", ": read_sample, stacks.py:"), job.err


@with_frames
def test_a_rank_in_state_d_is_read_and_marked(tmp_path):
    job = run("--nproc-per-node=3", SLOW, *worker(tmp_path, 1, "2:wait_in_kernel"), env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 2: wait_in_kernel, stacks.py:", "(uninterruptible, state D)"), job.err
    assert some_line(job.err, "rank 0: train_step, stacks.py:"), job.err


@with_frames
def test_memory_that_blocks_delays_no_other_rank(tmp_path):
    why = _no_page_faults()
    if why:
        pytest.skip(why)
    job = run("--nproc-per-node=4", SLOW, "--py-spy=none", *worker(tmp_path, 1, "2:without_page"), env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 2: state ", "(reading its memory blocks)"), job.err
    assert some_line(job.err, "ranks 0,3: train_step, stacks.py:"), job.err


def test_nothing_is_shown_by_default_of_programs_that_are_not_python(tmp_path):
    report = tmp_path / "report.json"
    job = run("--nproc-per-node=2", SLOW, f"--report={report}", "sh", "-c", "[ $RANK = 0 ] || exec sleep 1000; exit 3",
              env=env(DDRUN_STACKS="auto"))
    assert job.p.returncode == 3, job.err
    assert "stacks at that time" not in job.err
    assert {g["kind"] for g in stacks_of(report)["groups"]} <= {"ended"}


def test_a_py_spy_that_may_not_read_is_reported(tmp_path):
    broken = tmp_path / "py-spy"
    broken.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    broken.chmod(0o755)
    job = run("--nproc-per-node=2", SLOW, f"--py-spy={broken}", *worker(tmp_path, 1), env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 0: state ", "py-spy: ptrace is not permitted"), job.err


def test_a_py_spy_that_hangs_ends_with_the_time_limit(tmp_path):
    stuck = tmp_path / "py-spy"
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n")
    stuck.chmod(0o755)
    job = run("--nproc-per-node=2", "--stacks-timeout=1s", f"--py-spy={stuck}", *worker(tmp_path, 1), env=env())
    assert job.p.returncode == 1, job.err
    assert some_line(job.err, "rank 0: ", "did not "), job.err  # the agent's limit, or the daemon's on a busy machine


def test_a_node_whose_workers_have_ended_delays_no_other(tmp_path):
    report = tmp_path / "report.json"
    stuck = tmp_path / "py-spy"
    stuck.write_text(f"#!/bin/sh\n: >{tmp_path}/asked\nexec sleep 1000\n")
    stuck.chmod(0o755)
    script = tmp_path / "worker.sh"
    script.write_text(f"""#!/bin/sh
case $RANK in
0) while [ ! -e {tmp_path}/ready ]; do sleep 0.1; done; exit 3;;
1) exec {PYTHON} -c 'import os, time; open("{tmp_path}/ready", "w").close()
while not os.path.exists("{tmp_path}/asked"): time.sleep(0.1)
os._exit(4)';;
*) exec sleep 1000;;
esac
""")
    script.chmod(0o755)
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--stacks-timeout=600s", f"--py-spy={stuck}", f"--report={report}",
              str(script), env=env())
    assert job.p.returncode == 3, job.err
    found = {g["ranks"]: g["kind"] for g in stacks_of(report)["groups"]}
    assert found in ({"0-1": "ended", "2-3": "kernel"}, {"0-1": "ended", "2": "kernel", "3": "kernel"}), found


def test_one_line_says_that_workers_in_containers_of_podman_are_not_read(tmp_path):
    """The program of this test has Podman's name; the kernel keeps the name of a script that starts a shell."""
    report = tmp_path / "report.json"
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\n: >{tmp_path}/ready.$RANK\nsleep 1000; :\n")
    podman.chmod(0o755)
    script = f"""case $RANK in
0) exec {podman};;
1) {podman}; exit 0;;
*) until [ -e {tmp_path}/ready.0 ] && [ -e {tmp_path}/ready.1 ]; do sleep 0.1; done; exit 3;;
esac"""
    job = run("--nproc-per-node=3", SLOW, "--stacks=auto", f"--report={report}", "sh", "-c", script)
    assert job.p.returncode == 3, job.err
    note = "not read: the worker runs in a container of Podman"
    assert len([line for line in job.err.splitlines() if "Podman" in line]) == 1 and some_line(job.err, f"ranks 0-1: {note}"), job.err
    found = groups(stacks_of(report))["0-1"]
    assert (found["kind"], found["note"]) == ("unread", note)


def test_a_second_signal_does_not_wait_for_the_stacks(tmp_path):
    stuck = tmp_path / "py-spy"
    stuck.write_text(f"#!/bin/sh\n: >{tmp_path}/asked\nexec sleep 1000\n")
    stuck.chmod(0o755)
    with Job("--nproc-per-node=2", "--stacks-timeout=600s", f"--py-spy={stuck}", *worker(tmp_path, 1), env=env()) as job:
        until(lambda: (tmp_path / "asked").exists())
        job.p.send_signal(signal.SIGTERM)
        job.wait()
        assert "boom" in job.err
        job.assert_nothing_left()


def test_off_reads_nothing(tmp_path):
    report = tmp_path / "report.json"
    trap = tmp_path / "py-spy"
    trap.write_text(f"#!/bin/sh\n: >{tmp_path}/asked\n")
    trap.chmod(0o755)
    job = run("--nproc-per-node=2", "--stacks=off", f"--py-spy={trap}", f"--report={report}", *worker(tmp_path, 1), env=env())
    assert job.p.returncode == 1, job.err
    assert stacks_of(report) is None and not (tmp_path / "asked").exists()


def test_a_kill_of_the_agent_leaves_no_py_spy(tmp_path):
    stuck = tmp_path / "py-spy"
    stuck.write_text(f"#!/bin/sh\n: >{tmp_path}/asked\nexec sleep 1000\n")
    stuck.chmod(0o755)
    with Job("--nproc-per-node=2", "--stacks-timeout=600s", f"--py-spy={stuck}", *worker(tmp_path, 1), env=env()) as job:
        until(lambda: (tmp_path / "asked").exists())
        for pid in job.agents():
            os.kill(pid, signal.SIGKILL)
        job.wait()
        job.assert_nothing_left()


@pytest.mark.parametrize("option", ["--stacks=never", "--stacks-timeout=0s", "--stacks-timeout=1h"])
def test_bad_values_start_nothing(option):
    job = run(option, "true")
    assert job.p.returncode == 2 and option.split("=")[0] in job.err, job.err


# ---- ddctl stacks ----


def ddctl(*arguments):
    return answered([DDCTL, "stacks", *arguments])


def of(job):
    """Return the options that choose this job among those of parallel tests."""
    return [f"--job={job_id(job)}", "--timeout=25s"]


def job_id(job):
    pid = job.workers()[0]
    return re.search(rb"TORCHELASTIC_RUN_ID=([^\0]+)", open(f"/proc/{pid}/environ", "rb").read()).group(1).decode()


@with_frames
def test_ddctl_shows_the_stacks_of_a_running_job(tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=2", *worker(tmp_path, -1, "2:read_data"), env=env()) as job:
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(4)))
        p = ddctl(*of(job))
        assert p.returncode == 0, p.stderr
        assert re.search(r"^rank 2 on sim2: read_data, stacks\.py:\d+\n    read_data \(/", p.stdout), p.stdout
        assert re.search(r"^ranks 0-1,3: train_step, stacks\.py:\d+$", p.stdout, re.M)
        o = json.loads(ddctl(*of(job), "--rank=1-2", "--format=json").stdout)
        assert sorted(groups(o)) == ["1", "2"]
        o = json.loads(ddctl(*of(job), "--node=sim1", "--format=json").stdout)
        assert sorted(groups(o)) == ["0-1"]
        for bad, says in [(["--rank=7,9"], "no rank 7,9 in this job (ranks 0-3)"), (["--node=sim9"], "unknown node 'sim9' (nodes: sim[1-2])"),
                          (["--node=sim2", "--rank=0"], "no rank 0 on node sim2 (ranks 2-3)"), (["--rank=3-1"], "--rank")]:
            p = ddctl(*of(job), *bad)
            assert p.returncode != 0 and says in p.stderr, p.stderr
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


def test_ddctl_says_that_the_workers_of_a_node_have_ended():
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "sh", "-c", "[ $RANK = 0 ] || exec sleep 1000") as job:
        until(lambda: job.workers())
        says = "the requested workers have ended"
        until(lambda: len(job.workers()) == 1 and says in ddctl(*of(job), "--node=sim1").stderr)
        job.p.terminate()
        job.wait()


def test_ddctl_shows_programs_that_are_not_python():
    with Job("--nproc-per-node=2", "sleep", "1000", env=clean_env(DDRUN_STACKS="off")) as job:
        until(lambda: len(job.workers()) == 2)
        p = ddctl(*of(job))
        assert p.returncode == 0, p.stderr
        assert re.search(r"^ranks? 0.*: state ", p.stdout), p.stdout
        job.p.terminate()
        job.wait()


# ---- native frames ----

NATIVE = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void exchange(const char *mark)
{
    if (mark != NULL)
        close(creat(mark, 0600));
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(getenv("RANK"), "0") == 0) {
        while (access(argv[1], F_OK) != 0 || access(argv[2], F_OK) != 0)
            usleep(50000);
        return 3;
    }
    exchange(argc == 3 ? argv[strcmp(getenv("RANK"), "1") == 0 ? 1 : 2] : NULL);
}
"""


def tool_path(place, *tools):
    """Return a PATH with these tools of native frames only; skip the test if they do not work here."""
    place.mkdir()
    for tool in tools:
        path = shutil.which(tool)
        if path is None:
            pytest.skip(f"{tool} is not installed")
        with subprocess.Popen(["sleep", "1000"]) as child:
            done = subprocess.run([path, "-p", str(child.pid), *(["-batch"] if tool == "gdb" else [])], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=LIMIT, check=False)
            child.kill()
        if done.returncode != 0 or "not permitted" in done.stderr:
            pytest.skip(f"{tool} cannot attach here: {done.stderr[:200]}")
        (place / tool).symlink_to(path)
    for name in ("sh", "env", "sleep"):
        (place / name).symlink_to(shutil.which(name))
    return str(place)


@pytest.fixture
def native(tmp_path):
    """A program in C whose ranks from 1 on wait in exchange(); given two files, rank 0 fails when ranks 1 and 2 have made them."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source, made = tmp_path / "native.c", tmp_path / "native"
    source.write_text(NATIVE)
    subprocess.run(["cc", "-g", "-O0", "-o", made, source], check=True)
    return str(made)


@pytest.mark.parametrize("tool", ["eu-stack", "gdb"])
def test_native_frames_of_a_program_that_is_not_python(tmp_path, native, tool):
    report = tmp_path / "report.json"
    job = run("--nproc-per-node=3", SLOW, "--stacks-native", f"--report={report}", "--no-python", native, str(tmp_path / "1"), str(tmp_path / "2"),
              env=env(DDRUN_STACKS="auto", PATH=tool_path(tmp_path / "bin", tool)))
    assert job.p.returncode == 3, job.err
    assert some_line(job.err, "rank", ", native.c:", "(state "), job.err
    frames = [f for g in stacks_of(report)["groups"] for f in g["frames"] if g["kind"] == "kernel"]
    assert {"exchange", "main"} <= {f["function"] for f in frames}, frames
    assert all(f["line"] > 0 for f in frames if f["function"] == "exchange"), frames


@with_frames
@pytest.mark.parametrize("tool", ["eu-stack", "gdb"])
def test_native_frames_stand_below_those_of_python(tmp_path, tool):
    path = tool_path(tmp_path / "bin", tool)
    with Job("--nproc-per-node=2", *worker(tmp_path, -1), env=env(PATH=path)) as job:
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(2)))

        def read(*option):
            return json.loads(ddctl(*of(job), *option, "--format=json").stdout)["groups"]

        def is_native(group):
            return group["frames"] != [] and group["frames"][0]["file"].startswith("native:")

        found = until(lambda: [g for g in read("--native") if is_native(g)], say="native frames")  # gdb is slow on a busy machine
        for group in found:
            assert re.fullmatch(r"train_step, stacks\.py:\d+", group["headline"]), group
            assert group["frames"][-1]["file"].endswith("/stacks.py"), group
        until(lambda: all(sleeps(tmp_path, rank) for rank in range(2)), say="the ranks run on")
        assert not any(is_native(g) for g in read()), "no rank is stopped without --native"
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


def test_ddctl_says_that_no_tool_for_native_frames_is_found(tmp_path, native):
    with Job("--nproc-per-node=2", "--no-python", native, env=env(PATH=tool_path(tmp_path / "bin"))) as job:
        until(lambda: len(job.workers()) == 2)
        p = ddctl(*of(job), "--native")
        assert p.returncode == 0 and some_line(p.stdout, "ranks 0-1: state ", "no native frames: neither eu-stack nor gdb found"), p.stdout
        assert some_line(p.stderr, "tip: ", "elfutils", "gdb"), p.stderr
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()


@pytest.mark.parametrize("end, timeout", [("exec sleep 1000", "4s"), ("kill -KILL $$", "25s")])
def test_a_tool_for_native_frames_that_hangs_or_is_killed_leaves_no_stopped_worker(tmp_path, end, timeout):
    place = tmp_path / "bin"
    path = tool_path(place)
    (place / "eu-stack").write_text(f"#!/bin/sh\nfor pid; do :; done\nkill -STOP $pid\n{end}\n")
    (place / "eu-stack").chmod(0o755)
    with Job("--nproc-per-node=1", "--no-python", "sleep", "1000", env=env(PATH=path)) as job:
        until(lambda: len(job.workers()) == 1)
        pid, = job.workers()
        p = ddctl(f"--job={job_id(job)}", f"--timeout={timeout}", "--native")
        assert some_line(p.stdout, "rank 0: "), p.stdout
        until(lambda: re.search(r"^State:\s+S", open(f"/proc/{pid}/status").read(), re.M))
        job.p.terminate()
        job.wait()
        job.assert_nothing_left()
