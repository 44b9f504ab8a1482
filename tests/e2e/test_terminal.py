"""--stdin and --pty: which rank reads the terminal, what a debugger sees there, and that ddrun restores the terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import uuid

import pytest

from support import DDRUN, LIMIT, PYTHON, clean_env, comm, kill_marked, marked, parent, run, until

SAY = "import sys, os; os.write(1, f'rank {os.environ[\"RANK\"]} {sys.stdin.read()!r}\\n'.encode())"  # in one write


class Terminal:
    """ddrun on a pseudo-terminal of its own, in the foreground unless `background`."""

    def __init__(self, *args, background=False, size=None, **env):
        self.mark = uuid.uuid4().hex
        self.seen = ""
        self.code = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(0, 1)  # until the test has read the modes
            if background:  # as a shell does with '&'
                child = os.fork()
                if child:
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                os.setpgid(0, 0)
            os.execve(DDRUN, [DDRUN, "--shutdown-timeout=1s", *args], clean_env(DDRUN_TEST_MARK=self.mark, **env))
        self.before = termios.tcgetattr(self.fd)
        if size is not None:
            self.resize(*size)

    def resize(self, lines, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def __enter__(self):
        os.write(self.fd, b"\n")
        return self

    def __exit__(self, *exc):
        kill_marked(self.mark)
        if self.code is None:
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def read(self, limit=0.0):
        if not select.select([self.fd], [], [], limit)[0]:
            return False
        try:
            text = os.read(self.fd, 4096).decode(errors="replace")
        except OSError:
            return False
        self.seen += text
        return text != ""

    def expect(self, text, times=1):
        until(lambda: self.read(0.05) and False or self.seen.count(text) >= times, LIMIT, lambda: f"{text!r} in {self.seen!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return pid != 0

    def wait(self):
        until(lambda: self.read(0.02) and False or self.ended(), LIMIT, lambda: f"the end; seen: {self.seen!r}")
        while self.read():
            pass
        assert marked(self.mark) == []
        return self.code

    def mode(self):
        return termios.tcgetattr(self.fd)

    def guardian_and_agent(self):
        found = [pid for pid in marked(self.mark) if comm(pid) == "ddrun"]
        agent, = [pid for pid in found if parent(pid) in found]
        return parent(agent), agent


def python(code, *options):
    return [*options, "--no-python", PYTHON, "-u", "-c", code]


@pytest.mark.parametrize("options", [["--pty"], ["--pty=1", "--nproc-per-node=2"], ["--pty=1", "--simulate-nodes=2"], ["--pty", "--warm=json"]])
def test_a_pdb_session(options):
    rank = "1" if "--pty=1" in options else "0"
    code = f"import os\nif os.environ['RANK'] == '{rank}':\n    breakpoint()\n    print('on', os.ttyname(0) == os.ttyname(1) == os.ttyname(2))\n"
    with Terminal(*python(code, *options)) as t:
        t.expect("(Pdb)")
        t.type("p 6 * 7\n")
        t.expect("42")
        t.type("c\n")
        assert t.wait() == 0, t.seen
        assert "on True" in t.seen
        assert t.mode() == t.before


def test_the_report_has_the_exception_of_a_rank_on_its_own_terminal():
    code = "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('loss is nan')\ntime.sleep(1000)"
    with Terminal(*python(code, "--pty=1", "--nproc-per-node=2")) as t:
        assert t.wait() == 1
        assert "failed: ValueError: loss is nan (exit code 1)" in t.seen


def test_ctrl_c_is_the_programs_and_the_job_goes_on():
    code = "import time\ntry:\n    print('ready')\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    with Terminal(*python(code, "--pty")) as t:
        t.expect("ready")
        t.type("\x03")
        assert t.wait() == 0, t.seen
        assert "interrupted" in t.seen and "stopped by" not in t.seen and "error: " not in t.seen


def test_the_size_of_the_window_is_passed_on():
    code = ("import os, signal\nheard = []\nsignal.signal(signal.SIGWINCH, lambda *_: heard.append(1))\n"
            "print('first', os.get_terminal_size())\nwhile not heard or os.get_terminal_size().columns != 123:\n    time.sleep(0.02)\n"
            "print('then', os.get_terminal_size())\n")
    with Terminal(*python("import time\n" + code, "--pty"), size=(40, 100)) as t:
        t.expect("lines=")
        t.resize(41, 123)
        assert t.wait() == 0
        assert "columns=100, lines=40" in t.seen and "columns=123, lines=41" in t.seen


@pytest.mark.parametrize("victim", ["guardian", "agent", "worker"])
def test_the_terminal_is_restored_whoever_dies(victim):
    with Terminal(*python("import time\nprint('ready')\ntime.sleep(1000)", "--pty")) as t:
        t.expect("ready")
        assert t.mode() != t.before
        guardian, agent = t.guardian_and_agent()
        worker, = [pid for pid in marked(t.mark) if parent(pid) == agent and comm(pid) not in ("ddrun", "ddrund")]
        os.kill({"guardian": guardian, "agent": agent, "worker": worker}[victim], signal.SIGKILL)
        if victim == "guardian":  # then no process waits for the agent any more
            os.waitpid(t.pid, 0)
            t.code = -9
            until(lambda: not marked(t.mark))
        else:
            assert t.wait() == 137, t.seen
        assert t.mode() == t.before


def test_a_worker_that_dies_with_the_terminal_raw_does_not_leave_it_so():
    with Terminal(*python("import os, tty\ntty.setraw(0)\nprint('raw')\nos.kill(os.getpid(), 9)")) as t:
        assert t.wait() == 137 and "raw" in t.seen
        assert t.mode() == t.before


@pytest.mark.parametrize("options", [[], ["--pty"]])
def test_in_the_background_the_terminal_is_left_to_the_shell(options):
    code = "import sys, termios\nprint('got', repr(sys.stdin.read()) if not sys.stdin.isatty() else 'nothing')\n"
    with Terminal(*python(code, *options), background=True) as t:
        t.type("for the shell\n")
        assert t.wait() == 0, t.seen
        assert "got ''" in t.seen or "got nothing" in t.seen
        assert t.mode() == t.before


def feed(*args, stdin):
    return subprocess.run([DDRUN, *args], input=stdin, env=clean_env(), capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("text, seen", [("one\ntwo\n", "got one two"), ("no end", "got no end"), ("", "got")])
def test_a_pipe_may_feed_a_program_on_a_terminal(text, seen):
    code = "import sys\nassert sys.stdout.isatty()\nprint('got', *sys.stdin.read().split())"
    done = feed(*python(code, "--pty"), stdin=text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == seen


@pytest.mark.parametrize("path, seen", [("/dev/null", "got 0"), (None, "got 30000")])
def test_so_may_a_file(tmp_path, path, seen):
    (tmp_path / "in").write_text("x\n" * 30000)
    code = "import sys\nprint('got', len(sys.stdin.read().split()))"
    with open(path or tmp_path / "in", "rb") as f:
        done = subprocess.run([DDRUN, *python(code, "--pty")], stdin=f, env=clean_env(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].strip() == seen, done.stderr


@pytest.mark.parametrize("option, ranks", [(None, [0]), ("--stdin=0", [0]), ("--stdin=2", [2]), ("--stdin=none", [])])
@pytest.mark.parametrize("where", ["--nproc-per-node=3", "--simulate-nodes=3"])
def test_one_rank_reads_what_ddrun_is_given(option, ranks, where):
    done = feed(where, *([option] if option else []), *python(SAY), stdin="a line\n")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} " + repr("a line\n" if r in ranks else "") for r in range(3)]


def test_all_ranks_may_share_it():
    done = feed("--nproc-per-node=2", "--stdin=all", *python("import os; os.write(1, os.read(0, 1) + b'\\n')"), stdin="ab")
    assert sorted(done.stdout.split()) == ["a", "b"], done.stderr


@pytest.mark.parametrize("args, says", [(["--stdin=some"], "--stdin"), (["--stdin=-3"], "--stdin"), (["--pty=first"], "--pty")])
def test_what_is_no_rank_is_refused(args, says):
    job = run(*args, "true")
    assert job.p.returncode == 2 and says in job.err
