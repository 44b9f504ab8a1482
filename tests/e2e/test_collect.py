"""--collect: files of the nodes come back complete, at the end of the job, before its end, and after a failure."""

import json
import os
import signal
import subprocess

import pytest

from support import DDRUN, Job, built_with, clean_env, lines_with, run, some_line, told, until, without_tips
from test_elastic import Elastic, kill, of_round

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")]


@pytest.fixture(name="place")
def make_place(tmp_path):
    """Node-local directories: each worker of a simulated node writes below the name of its node."""
    for i in range(1, 5):
        (tmp_path / "local" / f"sim{i}").mkdir(parents=True)
    (tmp_path / "large").write_bytes(os.urandom(3 << 20))
    return tmp_path


def here(place):
    """The worker of rank N runs on the simulated node N + 1."""
    return f'cd {place}/local/sim$(($RANK + 1)) || exit 9; '


def rule(place, pattern="*"):
    return f"--collect={place}/local/$DDRUN_NODE/{pattern}:{place}/out"


def tree(top):
    found = set()
    for d, _, files in os.walk(top):
        found |= {os.path.relpath(os.path.join(d, f), top) for f in files}
    return found


def test_files_of_all_nodes_come_back_at_the_end(place):
    script = here(place) + f"mkdir -p run/deep; echo I am $RANK >run/deep/text; cp {place}/large run/; touch run/empty; chmod 640 run/large"
    job = run("--simulate-nodes=4", "--nproc-per-node=1", rule(place, "run"), "sh", "-c", script)
    assert job.p.returncode == 0, job.err
    out = place / "out"
    assert tree(out) == {f"sim{i}/run/{f}" for i in range(1, 5) for f in ("deep/text", "large", "empty")}
    for i in range(1, 5):
        assert (out / f"sim{i}/run/deep/text").read_text() == f"I am {i - 1}\n"
        assert (out / f"sim{i}/run/large").read_bytes() == (place / "large").read_bytes()
        here_, there = os.stat(place / f"local/sim{i}/run/large"), os.stat(out / f"sim{i}/run/large")
        assert (here_.st_mtime_ns, here_.st_mode) == (there.st_mtime_ns, there.st_mode)
    assert told(job.err) == "", job.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_left_out(place):
    """Another user can create files where a pattern looks; the copy would belong to the user of the job."""
    (place / "local/sim1/ours").write_text("a")
    (place / "local/sim1/planted").write_text("b")
    (place / "local/sim1/tree").mkdir()
    (place / "local/sim1/tree/planted").write_text("c")
    for name in ("planted", "tree"):
        os.chown(place / "local/sim1" / name, 2002, 2002)
    job = run("--nproc-per-node=1", f"--collect={place}/local/sim1/*:{place}/out", "true")
    assert job.p.returncode == 0 and [p.name for p in (place / "out").rglob("*") if p.is_file()] == ["ours"], job.err
    assert some_line(job.err, "not collected", "another user") or some_line(job.err, "not collected", "other users"), job.err


def test_the_name_of_a_file_that_is_left_out_has_no_control_characters(place):
    """Another user can create it. Terminals also obey the controls of ISO 6429 in UTF-8, such as CSI, U+009B."""
    os.mkfifo(place / "local/sim1/a\u009b31m\x1b[2Jb")
    job = run("--nproc-per-node=1", f"--collect={place}/local/sim1/*:{place}/out", "true")
    assert job.p.returncode == 0 and some_line(job.err, "not collected", "/a??31m?[2Jb'"), job.err


def test_a_worker_that_ends_at_once_loses_nothing(place):
    (place / "local/sim1/ready").write_text("before the job")
    for _ in range(3):
        job = run("--nproc-per-node=1", f"--collect={place}/local/sim1/*:{place}/out", "true")
        assert job.p.returncode == 0, job.err
        assert (*(p.name for p in (place / "out").rglob("ready")),) == ("ready",), job.err
        subprocess.run(["rm", "-r", str(place / "out")], check=True)


def test_a_failure_keeps_its_exit_code_and_its_files(place):
    job = run("--simulate-nodes=3", "--nproc-per-node=1", rule(place), "sh", "-c",
              f"{here(place)} echo $RANK >state; until [ -e {place}/local/sim1/state -a -e {place}/local/sim3/state ]; do sleep 0.1; done; "
              "[ $RANK != 1 ] || exit 7; sleep 600")
    assert job.p.returncode == 7, job.err
    assert tree(place / "out") == {f"sim{i}/state" for i in (1, 2, 3)}


def test_a_failure_of_all_nodes_at_once_keeps_their_files(place):
    """The nodes still agree where their files go while the round is being stopped."""
    for i in range(1, 5):
        (place / f"local/sim{i}/state").touch()
    for _ in range(3):
        job = run("--simulate-nodes=4", "--nproc-per-node=1", rule(place), "false")
        assert job.p.returncode == 1, job.err
        assert tree(place / "out") == {f"sim{i}/state" for i in range(1, 5)}, job.err
        subprocess.run(["rm", "-r", str(place / "out")], check=True)


def test_a_restart_collects_again_and_never_replaces_a_newer_file(place):
    newer = place / "out" / "sim1" / "kept"
    newer.parent.mkdir(parents=True)
    newer.write_text("newer")
    os.utime(newer, (4e9, 4e9))
    script = here(place) + "echo old >kept; echo $TORCHELASTIC_RESTART_COUNT >count; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"
    report = place / "report.json"
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", f"--report={report}", rule(place), "sh", "-c", script)
    assert job.p.returncode == 0, job.err
    assert newer.read_text() == "newer"
    assert (place / "out/sim1/count").read_text() == "1\n" and (place / "out/sim2/kept").read_text() == "old\n"
    assert some_line(job.err, "not collected", "sim1", "kept", "newer"), job.err
    warnings = json.loads(report.read_text())["warnings"]
    assert any(w["node"] == "sim1" and "kept" in w["text"] and "newer" in w["text"] for w in warnings), warnings


def test_files_come_at_the_signal_before_the_end_while_workers_run(place):
    script = here(place) + f"""
        trap 'echo $RANK >saved; got=1' USR1; touch ready
        until [ -n "$got" -a -e {place}/out/sim$(($RANK + 1))/early ]; do sleep 0.1; done; echo late >late"""
    for i in (1, 2):
        (place / f"local/sim{i}/early").write_text("early")
    end = int(subprocess.run(["date", "+%s"], capture_output=True, check=True).stdout) + 600
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--signal-before-end=USR1@598", rule(place), "sh", "-c", script,
              env=clean_env(SLURM_JOB_END_TIME=str(end)))
    assert job.p.returncode == 0, job.err
    assert tree(place / "out") == {f"sim{i}/{f}" for i in (1, 2) for f in ("early", "saved", "late", "ready")}


def test_a_stop_by_the_user_collects_what_is_there(place):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", rule(place), "sh", "-c",
             here(place) + "echo $RANK >state; echo running; sleep 600") as job:
        job.line("running\nrunning")
        job.p.send_signal(signal.SIGINT)
        assert job.wait() == 130
        job.assert_nothing_left()
    assert tree(place / "out") == {"sim1/state", "sim2/state"}


def test_what_cannot_come_is_named_and_the_exit_code_stays(place):
    script = here(place) + "ln -s /etc/passwd link; echo x >file; printf x >\"$(printf 'bad\\033name')\""
    (place / "out" / "sim1" / "file").mkdir(parents=True)
    job = run("--nproc-per-node=1", "--simulate-nodes=2", rule(place), "sh", "-c", script)
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "not collected from sim1", "file'", "not a file"), job.err
    assert len(lines_with(job.err, "link'", "symbolic link")) == 2, job.err
    assert "\033" not in job.err
    assert tree(place / "out") == {"sim2/file", "sim1/bad\033name", "sim2/bad\033name"}


def test_a_variable_that_is_not_set_on_the_node_is_named(place):
    job = run("--nproc-per-node=1", f"--collect=$NOT_SET/x:{place}/out", "true")
    assert job.p.returncode == 0
    assert some_line(job.err, "not collected", "NOT_SET", "not set"), job.err


def test_a_pattern_that_matches_nothing_on_any_node_is_named_once(place):
    """A misspelt pattern would lose the checkpoints silently. One that matches on one of the nodes is right."""
    (place / "local/sim2/step1.pt").write_text("a")
    job = run("--simulate-nodes=3", "--nproc-per-node=1", rule(place, "*.pt"), rule(place, "*.ptt"), "true")
    assert job.p.returncode == 0 and tree(place / "out") == {"sim2/step1.pt"}, job.err
    named = lines_with(job.err, "no node has a file that matches")
    assert len(named) == 1 and f"'{place}/local/$DDRUN_NODE/*.ptt'" in named[0], job.err


def test_a_pattern_that_matched_before_a_restart_is_not_named(place):
    script = here(place) + "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && rm -f state && exit; echo $RANK >state; exit 3"
    job = run("--nproc-per-node=1", "--simulate-nodes=2", "--max-restarts=1", rule(place, "state"), "sh", "-c", script)
    assert job.p.returncode == 0 and "no node has a file" not in job.err, job.err


def test_a_file_that_does_not_fit_leaves_nothing(place):
    small = place / "small"
    small.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m,mode=1777 none {small} && "$@"; rc=$?; '
             f'find {small} -type f >{place}/found; exit $rc', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    with Job("--nproc-per-node=1", f"--collect={place}/large:{small}", "true", before=mount) as job:
        assert job.wait() == 0, job.err
        assert some_line(job.err, "large'", "not enough space"), job.err
    assert (place / "found").read_text() == ""


@pytest.mark.parametrize("who", ["agent", "helper"])
def test_no_half_file_is_left_after_kill(place, who):
    fifo = place / "local" / "slow"
    os.mkdir(fifo)
    for i in range(2000):
        (fifo / f"file{i}").write_bytes(b"x" * 5000)
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--collect={fifo}:{place}/out", "true") as job:
        until(lambda: (place / "out").exists() and len(tree(place / "out")) > 3)
        for pid in job.agents() if who == "agent" else job.processes("ddrun-stage"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.wait()
        until(lambda: not job.processes("ddrun-stage"))
        job.assert_nothing_left()
    found = tree(place / "out")
    assert not [f for f in found if "/.ddrun" in f], found
    assert {os.path.getsize(place / "out" / f) for f in found} == {5000}


def test_a_lost_node_is_named_and_the_others_come(place):
    script = here(place) + f'echo $RANK >state; until [ -e {place}/go ]; do sleep 0.1; done; [ $RANK != 2 ] || kill -9 $PPID; sleep 600'
    with Job("--simulate-nodes=3", "--nproc-per-node=1", "--log-level=debug", rule(place), "sh", "-c", script) as job:
        job.errors("event=collect-known", 3)
        until(lambda: len(tree(place / "local")) == 3)
        (place / "go").touch()
        assert job.wait() not in (0, 2), job.err
    assert tree(place / "out") == {"sim1/state", "sim2/state"}
    assert some_line(job.err, "sim3 did not send all of its files"), job.err


def test_the_loss_of_the_first_node_is_survived(place):
    """The spare node looks for the next daemon for 30 s here. A node that tries to send its files to the lost one starts none."""
    with Elastic(4, "--nnodes=3:3", "--rejoin-timeout=10s", rule(place), first=3) as job:
        kill(job.host())
        of_round(job.said(3 + 3), 3, 3)
        job.release()
        job.finish()


MOVED = """
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 0 ] && exit 77
[ -e $PLACE/killed ] && exit 0
[ $TORCHELASTIC_RESTART_COUNT = 0 ] || echo $PPID >$PLACE/agent.$RANK
exec sleep 600
"""


def test_no_node_waits_for_a_first_node_that_is_lost(place):
    """The first node of the second round is not that of the daemon, which a rule has moved out of the round. Each other node would
    try for a minute to reach it; the new first node knows nothing of earlier matches."""
    options = (rule(place), "--nnodes=2:3", "--max-restarts=1", "--exit-rules=77=move", "--last-call=1s", "--rejoin-timeout=10s")
    states = [place / "local" / f"sim{i}" / "state" for i in (2, 3, 4)]  # one of these nodes has no part in the first round
    for state in states:
        state.touch()
    with Job("--simulate-nodes=4", "--nproc-per-node=1", *options, "sh", "-c", MOVED, env=clean_env(PLACE=str(place))) as job:
        until(lambda: len([f for f in place.glob("agent.*") if f.read_text()]) == 3, say=lambda: job.p.poll())
        for state in states:
            state.unlink()
        (place / "killed").touch()
        os.kill(int((place / "agent.0").read_text()), signal.SIGKILL)
        assert job.wait() == 0, job.err
        job.assert_nothing_left()
    assert some_line(job.err, "not collected from sim", "the first node was lost"), job.err
    assert len(tree(place / "out")) == 2, job.err
    assert "no node has a file that matches" not in job.err


@pytest.mark.parametrize("value, says", [
    ("/tmp/x", "PATTERN:DIR"),
    ("/tmp/x:", "PATTERN:DIR"),
    ("/:out", "cannot collect '/'"),
    ("/tmp/../x:out", "contains '..'"),
    ("/tmp/x:file", "is not a directory"),
    ("/tmp/x:file/below", "Not a directory"),
])
def test_a_bad_rule_is_refused_before_anything_starts(tmp_path, value, says):
    (tmp_path / "file").touch()
    job = run(f"--collect={value}", "touch", str(tmp_path / "started"), cwd=str(tmp_path))
    assert job.p.returncode == 2
    assert len(without_tips(told(job.err))) == 1 and says in job.err and "--collect" in job.err, job.err
    assert not (tmp_path / "started").exists()
