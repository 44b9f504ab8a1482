"""The status line: what a terminal shows while ddrun waits, and that no other output collides with it."""

import os
import re
import signal
import subprocess
import uuid

import pytest

from support import Job, clean_env, parent, program, run, until
from test_terminal import Terminal

HOSTS = "127.0.0.1,127.0.0.2,127.0.0.3"


def shown(text, columns):
    """Return the lines of a terminal after this output, which may have carriage returns, newlines, erasures to the end of the
    line, and wraps."""
    lines, x = [[]], 0
    for control, char in re.findall(r"(\x1b\[[0-9;]*[A-Za-z])|([\s\S])", text):
        if control:
            assert control[-1] in "Km", control
            if control[-1] == "K":
                del lines[-1][x:]
        elif char == "\r":
            x = 0
        elif char == "\n":
            lines.append([])
        else:
            if x == columns:
                lines.append([])
                x = 0
            lines[-1].extend(" " * (x - len(lines[-1])))
            lines[-1][x:x + 1] = [char]
            x += 1
    return ["".join(line).rstrip() for line in lines]


class Screen(Terminal):
    """A terminal of 100 columns."""

    columns = 100

    def __init__(self, *args, **env):
        super().__init__(*args, **{"TERM": "xterm", **env})
        self.widen(self.columns)

    def widen(self, columns):
        self.columns = columns
        self.resize(24, columns)

    def lines(self):
        return shown(self.seen, self.columns)

    def last(self):
        self.read(0.05)
        return self.lines()[-1]

    def shows(self, *parts):
        """Wait until the last line has all these parts; return it."""
        return until(lambda: all(p in self.last() for p in parts) and self.lines()[-1], say=lambda: f"{parts} in {self.lines()}")


def script(text):
    return ["--no-python", "sh", "-c", text, "sh"]


def nodes(tmp_path, worker, workers=1):
    """Return the command lines of three nodes with a common key."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    common = [f"--hosts={HOSTS}", f"--nproc-per-node={workers}", "--rdzv-timeout=5m", f"--rdzv-id={uuid.uuid4().hex}", f"--key-file={key}",
              "--launcher=none"]
    return [[*common, f"--node-rank={i}", *script(worker)] for i in range(3)]


def test_the_line_names_the_missing_node_and_is_gone_when_workers_write(tmp_path):
    first, second, third = nodes(tmp_path, "echo worker $RANK writes")
    with Screen(*first) as t, Job(*second):
        line = t.shows("2 of 3 nodes joined", "waiting for 127.0.0.3")
        assert re.fullmatch(r"ddrun: 2 of 3 nodes joined \([\dmins ]+ of 5 min\); waiting for 127\.0\.0\.3; 2 workers", line)
        t.widen(50)
        until(lambda: t.last() and t.seen.endswith("of 5 min)\x1b[K"), say="a shorter line")
        t.widen(100)
        t.shows("waiting for 127.0.0.3")
        with Job(*third) as last:
            assert t.wait() == 0, t.seen
            assert last.wait() == 0, last.err
        assert "worker 0 writes" in t.lines()
        assert not any("ddrun:" in line for line in t.lines())


def test_without_a_terminal_there_are_plain_lines_only(tmp_path):
    first, second, third = nodes(tmp_path, "true")
    env = clean_env(TERM="xterm")
    with Job(*first, env=env) as job, Job(*second, env=env) as other:
        job.errors("waiting for 1 of 3 nodes: 127.0.0.3; gives up in ")
        with Job(*third, env=env) as last:
            assert job.wait() == 0, job.err
            assert (other.wait(), last.wait()) == (0, 0), other.err + last.err
        for text in (job.errors_seen, job.err, other.err, last.err):
            assert "\x1b" not in text and "\r" not in text and "joined" not in text


@pytest.fixture
def held_copy(tmp_path):
    """Start a job of this many nodes whose --stage reads a source of this size only once the file `held` is removed."""
    library, held, source = tmp_path / "held_reads.so", tmp_path / "held", tmp_path / "source"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("held_reads.c"), "-ldl"], check=True)
    source.mkdir()
    held.touch()

    def start(nodes, size, text):
        (source / "data").write_bytes(os.urandom(size))
        return held, Screen(f"--simulate-nodes={nodes}", "--nproc-per-node=1", f"--stage={source}", f"--stage-dir={tmp_path}", *script(text),
                            LD_PRELOAD=str(library), HELD_READS=str(held))

    return start


def test_the_line_shows_how_much_of_a_copy_has_arrived_until_workers_start(held_copy):
    held, screen = held_copy(2, 8 << 20, "echo worker $RANK writes")
    with screen as t:
        line = t.shows("ddrun: copying: ")
        assert re.fullmatch(r"ddrun: copying: 0 of \d+ MiB \(0%\), 0 of 2 nodes done", line)
        held.unlink()
        assert t.wait() == 0, t.seen
        assert "worker 0 writes" in t.lines()
        assert not any("ddrun:" in line for line in t.lines())


def helpers_of(place):
    """The process IDs of ddrun-stage whose private directories are below this place, and which of them reads the source."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")] if f.read() == "ddrun-stage\n" else []
        except OSError:
            continue
        if any(file.startswith(str(place)) for file in files):
            found[int(pid)] = any(file == f"{place}/source/data" for file in files)
    return found


def test_the_line_names_the_node_that_is_behind_with_a_copy(held_copy, tmp_path):
    held, screen = held_copy(3, 64 << 20, "true")
    with screen as t:
        t.shows("ddrun: copying: ")
        helpers = until(lambda: len(found := helpers_of(tmp_path)) == 3 and any(found.values()) and found, say="three helpers, one reads")
        behind = next(pid for pid, reads in helpers.items() if not reads)
        os.kill(behind, signal.SIGSTOP)
        held.unlink()
        assert re.search(r", 0 of 3 nodes done, slowest sim[23]$", t.shows("slowest"))
        os.kill(behind, signal.SIGCONT)
        assert t.wait() == 0, t.seen


def variable(pid, name):
    """A variable in the environment of a process."""
    with open(f"/proc/{pid}/environ", encoding="utf-8") as f:
        return dict(v.partition("=")[::2] for v in f.read().split("\0")).get(name)


def node_rank(helper):
    """The rank of its node: that of the worker beside it, which waits for the copy."""
    agent = parent(helper)
    with open(f"/proc/{agent}/task/{agent}/children", encoding="ascii") as f:
        return next(int(rank) for pid in f.read().split() if (rank := variable(pid, "GROUP_RANK")) is not None)


def test_the_line_counts_the_nodes_that_are_done_and_names_the_one_that_is_not(held_copy, tmp_path):
    """The copy is smaller than what is in flight between two nodes, so three nodes complete it; sim4 gets it from sim2."""
    held, screen = held_copy(4, 4 << 20, f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo worker $RANK writes")
    with screen as t:
        t.shows("ddrun: copying: ", ", 0 of 4 nodes done")
        helpers = until(lambda: len(found := helpers_of(tmp_path)) == 4 and found, say="four helpers")
        behind = next(pid for pid in helpers if node_rank(pid) == 3)
        os.kill(behind, signal.SIGSTOP)
        held.unlink()
        line = t.shows("3 of 4 nodes done, slowest sim4")
        assert re.fullmatch(r"ddrun: copying: 0 of 4 MiB \(\d%\), 3 of 4 nodes done, slowest sim4", line)
        os.kill(behind, signal.SIGCONT)
        until(lambda: "ddrun:" not in t.last(), say="the end of the line")
        (tmp_path / "go").touch()
        assert t.wait() == 0, t.seen
        assert sorted(line for line in t.lines() if "writes" in line) == [f"worker {i} writes" for i in range(4)]


def test_the_line_is_not_used_after_the_end(tmp_path):
    """The helper of --stage may run until the agent exits, for other nodes."""
    library, source = tmp_path / "poisoned_free.so", tmp_path / "source"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, program("poisoned_free.c")], check=True)
    source.mkdir()
    (source / "data").write_bytes(os.urandom(1 << 20))
    with Screen("--nproc-per-node=1", f"--stage={source}", f"--stage-dir={tmp_path}", *script("echo worker writes"), LD_PRELOAD=str(library)) as t:
        assert t.wait() == 0, t.seen
        assert "worker writes" in t.lines()


def test_a_dumb_terminal_and_quiet_messages_get_no_line(tmp_path):
    first, second, third = nodes(tmp_path, "true")
    with Screen("--log-level=warning", *first) as t, Job(*second) as other, Job(*third) as last:
        assert t.wait() == 0, t.seen
        assert (other.wait(), last.wait()) == (0, 0)
    assert "\x1b" not in t.seen


def test_at_a_restart_the_line_meets_no_output_of_workers(tmp_path):
    """sim1 has stopped its worker; that of sim2 still writes, and ends when the test permits it."""
    worker = f"""cd {tmp_path}
    if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo again $RANK; exit 0; fi
    if [ $RANK = 0 ]; then until [ -e ready ]; do sleep 0.05; done; exit 3; fi
    trap 'echo stopping; until [ -e say ]; do sleep 0.05; done; echo one; echo two; until [ -e go ]; do sleep 0.05; done; exit 0' TERM
    touch ready; while :; do sleep 0.05; done"""
    with Screen("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", "--shutdown-timeout=5m", *script(worker)) as t:
        line = t.shows("restarting, 1 of 2 nodes stopped", "waiting for sim2")
        assert re.search(r"\([\dmins ]+ of 5 min\); waiting for sim2; attempt 2 of 2", line)
        (tmp_path / "say").touch()
        t.expect("two")
        t.shows("waiting for sim2")
        (tmp_path / "go").touch()
        assert t.wait() == 0, t.seen
        lines = t.lines()
        assert lines.count("one") == lines.count("two") == lines.count("stopping") == 1, lines
        assert sorted(line for line in lines if line.startswith("again")) == ["again 0", "again 1"]
        assert not any("nodes stopped" in line for line in lines)


def test_output_after_the_line_waits_while_the_terminal_is_stopped(tmp_path):
    """Ctrl-S, then the workers write and end, then Ctrl-Q."""
    first, second, third = nodes(tmp_path, f"echo worker $RANK writes; touch {tmp_path}/ended.$RANK", workers=4)
    with Screen(*first) as t, Job(*second) as other:
        t.shows("2 of 3 nodes joined")
        t.type("\x13")
        with Job(*third) as last:
            until(lambda: all((tmp_path / f"ended.{i}").exists() for i in range(12)), say="the workers' ends")
            assert "writes" not in t.last()
            t.type("\x11")
            assert t.wait() == 0, t.seen
            assert (other.wait(), last.wait()) == (0, 0), other.err + last.err
        assert sorted(line for line in t.lines() if "writes" in line) == [f"worker {i} writes" for i in range(4)]
        assert not any("ddrun:" in line for line in t.lines())


def test_the_line_of_an_agent_that_is_killed_is_erased(tmp_path):
    first, _, _ = nodes(tmp_path, "true")
    with Screen(*first) as t:
        t.shows("1 of 3 nodes joined", "waiting for 127.0.0.2, 127.0.0.3")
        os.kill(t.guardian_and_agent()[1], signal.SIGKILL)
        assert t.wait() == 128 + signal.SIGKILL
        assert not any("nodes joined" in line for line in t.lines())
        assert any("the agent was killed by signal 9" in line for line in t.lines())


RED, GREEN = "\x1b[1;31merror:\x1b[0m unknown option", "  \x1b[1;32mtip:\x1b[0m did you mean"


@pytest.mark.parametrize("env, coloured", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False),
                                           ({"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True)])
def test_messages_have_colours_on_a_terminal(env, coloured):
    with Screen("--nnods=2", "true", **env) as t:
        assert t.wait() == 2
        assert (RED in t.seen and GREEN in t.seen) == coloured
        assert ("\x1b" in t.seen) == coloured


@pytest.mark.parametrize("env, coloured", [({"TERM": "xterm"}, False), ({"CLICOLOR_FORCE": "1"}, True),
                                           ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False)])
def test_messages_have_colours_elsewhere_only_by_force(env, coloured):
    job = run("--nnods=2", "true", env=clean_env(**env))
    assert job.p.returncode == 2
    assert (RED in job.err and GREEN in job.err) == ("\x1b" in job.err) == coloured


def test_the_report_of_a_failure_has_colours():
    with Screen(*script("echo CUDA out of memory; exit 1")) as t:
        assert t.wait() == 1, t.seen
        assert "\x1b[1;31merror:\x1b[0m rank 0" in t.seen and "\x1b[1;32mtip:\x1b[0m" in t.seen, t.seen
