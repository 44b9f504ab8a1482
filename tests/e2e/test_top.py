"""ddctl top: the screen of a running job, its keys, and the terminal after its end."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios

import pytest

from support import BUILD, LIMIT, PYTHON, Job, answered, clean_env, marked, until

DDCTL = os.path.join(BUILD, "ddctl")
SHELL = ["--no-python", "sh", "-c"]


def job_id(job):
    def found():
        for pid in job.workers():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
                if match := re.search(rb"TORCHELASTIC_RUN_ID=([^\0]+)", f.read()):
                    return match.group(1).decode()
        return None
    return until(found)


def ddctl(*arguments, **env):
    return answered([DDCTL, "top", *arguments], env=clean_env(**env))


class Top:
    """ddctl top on a pseudo-terminal, whose cells this class keeps. Fails on a sequence that it does not know."""

    def __init__(self, job, lines=24, columns=80, before=(), **env):
        self.lines, self.columns = lines, columns
        self.argv = [*before, DDCTL, "top", f"--job={job}", "--interval=0.2s"]
        self.env = clean_env(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **env})

    def __enter__(self):
        self.raw = ""
        self.rest = ""
        self.code = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(0, 1)  # until the test has read the modes and set the size
            os.execvpe(self.argv[0], self.argv, self.env)
        self.before = termios.tcgetattr(self.fd)
        self.resize(self.lines, self.columns)
        os.write(self.fd, b"\n")
        return self

    def __exit__(self, *exc):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.lines)]
        self.x = self.y = 0

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.clear()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def take(self, text):
        self.raw += text
        text = self.rest + text
        cut = re.search(r"\x1b(\[[?0-9;]*)?$", text)
        self.rest = text[cut.start():] if cut else ""
        for sequence, char in re.findall(r"(\x1b\[[?0-9;]*[A-Za-z])|([\s\S])", text[:len(text) - len(self.rest)]):
            if sequence:
                self.sequence(sequence[2:-1], sequence[-1])
            elif char == "\n":
                self.y += 1
            elif char == "\r":
                self.x = 0
            elif self.x < self.columns and self.y < self.lines:
                assert char >= " ", repr(text)
                self.cells[self.y][self.x] = char
                self.x += 1

    def sequence(self, numbers, final):
        if final == "H":
            y, x = numbers.split(";")
            self.y, self.x = int(y) - 1, int(x) - 1
        elif final == "K" and self.y < self.lines:
            self.cells[self.y][self.x:] = [" "] * (self.columns - self.x)
        elif final == "J":
            self.clear()
        else:
            assert final in "mhlK", (numbers, final)

    def read(self, limit=0.0):
        if not select.select([self.fd], [], [], limit)[0]:
            return False
        try:
            text = os.read(self.fd, 65536)
        except OSError:
            return False
        self.take(text.decode(errors="replace"))
        return bool(text)

    def screen(self):
        return ["".join(line).rstrip() for line in self.cells]

    def shows(self, *wanted):
        """Wait until the screen has all these texts. Return its lines."""
        def has():
            while self.read(0.05):
                pass
            return all(re.search(w, "\n".join(self.screen()), re.M) for w in wanted)
        until(has, say=lambda: f"{wanted} in {self.screen()}")
        return self.screen()

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def mode(self):
        return termios.tcgetattr(self.fd)

    def ended(self):
        self.read(0.02)
        if self.code is not None:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return pid != 0

    def end(self):
        """Wait for the end, after which the terminal must be as before. Return the exit code."""
        until(self.ended, LIMIT, lambda: f"the end; {self.screen()}")
        while self.read():
            pass
        assert self.mode() == self.before
        assert self.raw.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"), repr(self.raw[-80:])
        return self.code


def sleeping(nodes=1, workers=2):
    return Job(f"--simulate-nodes={nodes}", f"--nproc-per-node={workers}", *SHELL, "sleep 1000; :")


def finish(job):
    job.p.terminate()
    job.wait()
    job.assert_nothing_left()


def test_the_screen_shows_ranks_and_stacks_and_q_restores_the_terminal():
    with sleeping(nodes=2) as job, Top(job_id(job)) as top:
        lines = top.shows(r"2 nodes, 4 workers: 4 running, 0 failed", r"^ +3  sim2 +running")
        assert re.match(rf"job \S*{job_id(job)} running, round 0, --max-restarts=0", lines[0])
        assert re.match(r" +RANK +NODE +STATE", lines[3])
        assert "q quit" in lines[23] and "1-4 of 4" in lines[23]
        top.type("f")
        top.shows(r"No worker has failed in round 0\.", "q back")
        top.type("q")
        top.shows("q quit")
        top.type("s")
        while "did not answer" in "".join(top.shows(r"^stacks of all workers", r"^ranks? 0.*: state |did not answer", "q back")):
            top.type("q")
            top.shows("q quit")
            top.type("s")
        top.type("\x1b")
        top.shows("q quit")
        top.type("q")
        assert top.end() == 0
        finish(job)


def test_processor_time_memory_and_last_lines_of_each_rank(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    code = "import os\nrank = os.environ['RANK']\nblock = bytearray(80_000_000 if rank == '1' else 1)\n" \
           "print('early', flush=True)\nprint(f'line of {rank} \\033]0;evil\\a\\033[2J\\u6f22', flush=True)\n" \
           f"if rank == '3':\n    line = open({str(go)!r}).readline()\n    print('later', line, flush=True)\n" \
           "while rank == '2':\n    pass\nimport signal\nsignal.pause()\n"
    with Job("--simulate-nodes=2", "--nproc-per-node=2", PYTHON, "-c", code, env=clean_env(PYTHONIOENCODING="utf-8")) as job, \
            Top(job_id(job)) as top:
        lines = top.shows(r"RANK +NODE +STATE +CPU% +MEM +LAST LINE", r"^ +1  sim1 +running +\d+ +(8|9|1\d)\dM  line of 1 \u6f22",
                          r"^ +2  sim2 +running +[1-9]\d* +\S+  line of 2 ", r"^ +3  sim2 +running +\d+ +\S+  line of 3 ")
        assert re.search(r", CPU \d+%, memory \d+M", lines[1]), lines
        top.type("Gl")
        top.shows(r"^last lines of rank 3 on sim2", r"^early$", r"^line of 3 ")
        go.write_text("line\n")
        top.shows(r"^later line$")
        top.type("q")
        top.shows(r"^ +3 .*  later line")
        assert "evil" not in top.raw
        top.type("q")
        assert top.end() == 0
        finish(job)


def test_a_failure_appears_and_the_end_of_the_job_is_shown(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f'trap "" TERM; echo deaf; if [ $RANK = 1 ]; then read line <{go}; echo boom >&2; exit 7; fi; while :; do sleep 1000; done'
    with Job("--nproc-per-node=2", "--max-restarts=0", "--shutdown-timeout=500s", *SHELL, script) as job, Top(job_id(job)) as top:
        top.shows("2 running, 0 failed", r"^ +0 .*  deaf", r"^ +1 .*  deaf")
        go.write_text("\n")
        top.shows(r"^first failure: rank 1 on ", r"^ +1  \S+ +failed", "1 failed")
        top.type("f")
        top.shows(r"^exit code 7$", r"^rank 1 on \S+, round 0, ")
        top.type("q")
        for pid in job.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert job.wait() == 7
        top.shows("no job |no ddrun job|closed the connection|did not answer|not connected")
        top.type("q")
        assert top.end() == 0


def test_hundreds_of_ranks_scroll():
    with Job("--nproc-per-node=200", *SHELL, "exec sleep 1000") as job, Top(job_id(job)) as top:
        top.shows("200 workers: 200 running", "1-19 of 200")
        top.type("\x1b[6~\x1b[6~")
        top.shows(r"^ +38  \S+ +running", "21-39 of 200|20-38 of 200")
        top.type("G")
        top.shows(r"^ +199  \S+ +running", "182-200 of 200")
        top.type("k" * 20)
        top.shows("180-198 of 200")
        top.resize(40, 132)
        top.shows("166-200 of 200", r"^ +199  \S+ ")
        top.type("g")
        top.shows("1-35 of 200")
        top.type("q")
        assert top.end() == 0
        finish(job)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(sig):
    with sleeping() as job, Top(job_id(job)) as top:
        top.shows("2 running")
        assert top.mode() != top.before
        if sig == signal.SIGINT:
            top.type("\x03")
        else:
            os.kill(top.pid, sig)
        assert top.end() == -sig
        finish(job)


def test_it_waits_for_an_agent_that_is_stopped_and_then_shows_the_job():
    with Job("--nproc-per-node=2", "--heartbeat=1h", *SHELL, "sleep 1000; :") as job:
        name, (agent,) = job_id(job), job.agents()
        until(lambda: "2 workers: 2 running" in ddctl(f"--job={name}", "--once").stdout)
        os.kill(agent, signal.SIGSTOP)
        once = subprocess.run([DDCTL, "top", f"--job={name}", "--once"], env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)
        assert once.returncode == 1 and "did not answer" in once.stderr, "a script does not wait"
        with Top(name) as top:
            until(lambda: top.read(0.05) and False or "may be stopped" in top.raw)
            assert re.search("waiting for an answer .*did not answer within 3 s; (it|they) may be stopped", top.raw), top.raw
            assert top.mode() == top.before
            os.kill(agent, signal.SIGCONT)
            top.shows("2 running", "q quit")
            top.type("q")
            assert top.end() == 0
        finish(job)


def test_ctrl_z_restores_the_terminal_until_it_continues(tmp_path):
    # a shell with job control would do the same: the process group must not be orphaned
    stand_in = "import os, signal, sys\npid = os.fork()\nif pid == 0:\n    os.setpgid(0, 0)\n    signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n" \
               "    os.tcsetpgrp(0, os.getpid())\n    signal.signal(signal.SIGTTOU, signal.SIG_DFL)\n    os.execv(sys.argv[1], sys.argv[1:])\n" \
               f"os.waitpid(pid, os.WUNTRACED)\nopen({str(tmp_path / 'stopped')!r}, 'w').write(str(pid))\n" \
               "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    with sleeping() as job, Top(job_id(job), before=[sys.executable, "-c", stand_in]) as top:
        top.shows("2 running")
        top.type("\x1a")
        stopped = tmp_path / "stopped"
        until(lambda: top.read(0.05) and False or stopped.exists() and stopped.read_text() != "")
        while top.read(0.05):
            pass
        assert top.mode() == top.before and top.raw.endswith("\x1b[?1049l")
        top.clear()
        os.kill(int(stopped.read_text()), signal.SIGCONT)
        top.shows("2 running", "q quit")
        assert top.mode() != top.before
        top.type("q")
        assert top.end() == 0
        finish(job)


def test_a_killed_top_leaves_no_process():
    mark = "top" + os.urandom(8).hex()
    with sleeping() as job:
        with Top(job_id(job), DDRUN_TEST_MARK=mark) as top:
            top.shows("2 running")
            top.type("s")
            os.kill(top.pid, signal.SIGKILL)
        until(lambda: marked(f"DDRUN_TEST_MARK={mark}") == [])
        finish(job)


def test_no_colour_on_request():
    with sleeping() as job:
        with Top(job_id(job), NO_COLOR="1") as top:
            top.shows("2 running")
            top.type("q")
            assert top.end() == 0
            assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", top.raw)
        finish(job)


def test_without_a_terminal_it_prints_text_once_or_fails():
    with sleeping(nodes=2) as job:
        tried = []

        def once():
            tried.append(ddctl(f"--job={job_id(job)}", "--once", TERM="dumb"))
            return tried[-1].returncode != 0 or "4 workers: 4 running" in tried[-1].stdout
        until(once, say="4 running workers")
        p = tried[-1]
        assert p.returncode == 0, p.stderr
        assert re.search(r"^2 nodes, 4 workers: 4 running, 0 failed", p.stdout, re.M), p.stdout
        assert len(re.findall(r"^ +[0-3]  sim[12]  running", p.stdout, re.M)) == 4 and "\x1b" not in p.stdout
        p = ddctl(f"--job={job_id(job)}")
        assert p.returncode == 2 and p.stdout == ""
        assert p.stderr == "ddctl top: error: stdout is not a terminal\n" \
                           "  tip: 'ddctl top --once' prints the state as text, 'ddctl top --format=json' as JSON\n"
        with Top(job_id(job), TERM="dumb") as top:
            until(top.ended, LIMIT)
            assert top.code == 2 and "TERM=dumb" in top.raw and "--once" in top.raw
        finish(job)


def test_json_has_each_rank_once_and_needs_no_terminal(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f'trap "" TERM; echo "line of $RANK"; if [ $RANK = 1 ]; then read line <{go}; exit 7; fi; while :; do sleep 1000; done'
    with Job("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=0", "--shutdown-timeout=500s", *SHELL, script) as job:
        def snapshot(wanted):
            def asked():
                p = ddctl(f"--job={job_id(job)}", "--format=json", TERM="dumb")
                assert p.returncode == 0, p.stderr
                found = json.loads(p.stdout)
                return found if wanted(found) else None
            return until(asked, LIMIT)
        lines = [f"line of {rank}" for rank in range(4)]
        shown = snapshot(lambda found: [w["last_line"] for w in found["workers"]] == lines)
        assert [(w["rank"], w["local_rank"], w["node"], w["state"]) for w in shown["workers"]] == \
            [(0, 0, "sim1", "running"), (1, 1, "sim1", "running"), (2, 0, "sim2", "running"), (3, 1, "sim2", "running")]
        assert shown["running"] == 4 and all(w["memory_bytes"] > 0 and w["pid"] in job.workers() for w in shown["workers"])
        assert [(node["name"], node["workers"]) for node in shown["nodes"]] == [("sim1", 2), ("sim2", 2)]
        go.write_text("\n")
        shown = snapshot(lambda found: found["failed"] == 1)
        assert shown["workers"][1]["state"] == "failed" and shown["workers"][1]["failure"] and shown["workers"][1]["pid"] is None
        for pid in job.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert job.wait() == 7
        job.assert_nothing_left()
