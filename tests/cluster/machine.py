"""One machine of a temporary cluster: mount, uts, ipc, net and pid namespaces, kept by a process 1.

The namespaces have no other holder than the machine's processes: with them end its mounts, interfaces and sockets.
"""

import os
import pty
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

import proc
from proc import Ident

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 180  # seconds; only to end a hang
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterError(Exception):
    """An error message of one sentence."""


def until(condition, timeout, what):
    """Return the first true result of condition(); raise ClusterError with `what` after the timeout. The calls take at most a
    sixth of the time at first, and less and less later."""
    deadline = time.monotonic() + timeout
    pause = 0.01
    while True:
        began = time.monotonic()
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise ClusterError(f"not within {timeout} s: {what() if callable(what) else what}")
        pause = min(max(1.3 * pause, 5 * (time.monotonic() - began)), 0.5)
        time.sleep(pause)


@dataclass(frozen=True)
class Result:
    rc: int  # negative: died of that signal
    out: str
    err: str


class Run:
    """A command that runs in a machine. Its output goes to files, which can be read meanwhile."""

    def __init__(self, argv, env, tty=False, label=""):
        self.label = label
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._terminal = None
        streams = {"stdin": subprocess.DEVNULL, "stdout": self._out, "stderr": self._err}
        if tty:
            self._terminal, inner = pty.openpty()
            streams["stdin"] = inner
        self._popen = subprocess.Popen(argv, env=env, cwd="/", start_new_session=True, **streams)
        if tty:
            os.close(inner)

    @staticmethod
    def _text(file):
        fd = file.fileno()  # shared with the command, whose file offset must stay
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    @property
    def out(self):
        return self._text(self._out)

    @property
    def err(self):
        return self._text(self._err)

    @property
    def rc(self):
        """The exit code, or None while the command runs."""
        return self._popen.poll()

    def _inner(self):
        """Return the command itself, the only child of nsenter."""
        pid = self._popen.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                children = f.read().split()
        except OSError:
            return None
        return Ident.of(int(children[0])) if children else None

    def signal(self, sig):
        inner = until(lambda: self._inner() or self.rc is not None, LIMIT, f"{self.label} has started")
        if inner is True or not inner.kill(sig):
            raise ClusterError(f"{self.label} has already ended with {self.rc}")

    def type(self, keys):
        """Write keys to the command's terminal (tty=True)."""
        os.write(self._terminal, keys)

    def interrupt(self):
        """Type Ctrl-C as srun requires before it ends a step: twice within a second, and again if this machine was too slow."""
        def said(text):
            return (self.out + self.err).count(text)

        pressed = 0
        while self.rc is None and not said("sending Ctrl-C"):
            self.type(b"\x03")
            pressed += 1
            until(lambda: said("one more within 1 sec") == pressed or said("sending Ctrl-C") or self.rc is not None, LIMIT,
                  lambda: f"srun hears Ctrl-C: {self.out}{self.err}")

    def wait(self, timeout=LIMIT):
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            last = f"stdout:\n{self.out}\nstderr:\n{self.err}"
            self.close()
            raise ClusterError(f"{self.label}: not ended within {timeout} s; {last}") from None
        return Result(self.rc, self.out, self.err)

    def wait_for(self, text, timeout=LIMIT):
        """Wait until the output contains `text`."""
        def seen():
            ended = self.rc is not None
            if text in self.out or text in self.err:
                return True
            if ended:
                raise ClusterError(f"{self.label} ended with {self.rc} without '{text}': {self.out}{self.err}")
            return False
        until(seen, timeout, lambda: f"'{text}' in the output of {self.label}: {self.out}{self.err}")

    def close(self):
        """Kill the command if it still runs."""
        inner = self._inner()
        if inner and self.rc is None:
            inner.kill(signal.SIGKILL)
        if self.rc is None:
            self._popen.kill()
        self._popen.wait()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Machine:
    def __init__(self, base, name, users, scheduler):
        """scheduler: env for commands, names of daemons, whether it needs set-user-id programs (see scheduler.py)."""
        self.base, self.name, self.users, self.scheduler = base, name, users, scheduler
        self.init = self.keeper = None  # Ident of process 1 and of the unshare above it
        self._children = []
        self.hidden = ()

    # --- start and end ---

    def boot(self, hostname, gpus, share, note):
        """Start process 1, and call note() once its pid is known. booted() completes the start."""
        log = open(f"{self.base}/log/machine.{self.name}", "ab")
        argv = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child=KILL", "--",
                "sh", f"{HERE}/machine.sh", self.base, self.name, hostname, str(gpus), *share]
        with log:
            self._boot = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd="/",
                                          env={"PATH": PATH}, start_new_session=True)
        self._children.append(self._boot)
        self.hidden = tuple(share)
        line = self._boot.stdout.readline()
        if not line:
            self._boot.kill()
            raise ClusterError(f"machine {self.name} did not start: {self.log('machine')}")
        self.keeper, self.init = Ident.of(self._boot.pid), Ident.of(int(line))
        note()

    def booted(self):
        with self._boot.stdin as go, self._boot.stdout as answer:
            go.write(b"go\n")
            go.flush()
            if answer.readline() != b"ready\n":
                raise ClusterError(f"machine {self.name} did not start: {self.log('machine')}")

    def up(self):
        return self.init is not None and self.init.alive()

    def _entered(self):
        """Return the nsenter processes of commands in the machine. One stops when its command is stopped, and then never reaps
        the command."""
        inside = proc.processes(self.init.pid)
        parents = {p.parent for p in inside} - {p.outer for p in inside} - {self.keeper.pid}
        return [ident for ident in map(Ident.of, parents) if ident]

    def kill(self, timeout=LIMIT):
        """Kill process 1, which ends all others; return when no process of the machine is left."""
        if self.init:
            outside = self._entered()
            self.init.kill()
            for ident in outside:
                ident.kill(signal.SIGCONT)
            if not self.init.wait_gone(timeout) or not self.keeper.wait_gone(timeout):  # the keeper reaps process 1 and ends after it
                raise ClusterError(f"machine {self.name} (process {self.init.pid}) does not die")
        for child in self._children:
            child.wait()
        self._children = []
        self.init = self.keeper = None

    # --- commands ---

    def enter(self, argv, user="root", env=None, cwd="/", tty=False):
        """Return the argument list and the environment that start `argv` inside; nothing else is inherited."""
        if not self.up():
            raise ClusterError(f"machine {self.name} is down")
        uid, home = self.users[user]
        full = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8",
                **self.scheduler.env, **(env or {})}
        head = ["nsenter", "-t", str(self.init.pid), "-m", "-u", "-i", "-n", "-p", "--", "env", "-C", cwd, "--"]
        if uid:
            head += ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps=-all"]
            head += ["--"] if self.scheduler.setuid else ["--bounding-set=-all", "--"]
        if tty:
            head += ["setsid", "--ctty"]
        return head + list(argv), full

    def popen(self, argv, **how):
        full, env = self.enter(argv, **how)
        return Run(full, env, how.get("tty", False), f"'{' '.join(argv)[:80]}' on {self.name}")

    def run(self, argv, timeout=LIMIT, **how):
        with self.popen(argv, **how) as run:
            return run.wait(timeout)

    def daemon(self, argv, log):
        """Start one of the machine's own daemons, which stays in the foreground of its own session."""
        full, env = self.enter(argv)
        with open(f"{self.base}/log/{log}.{self.name}", "ab") as out:
            self._children.append(subprocess.Popen(full, env=env, cwd="/", start_new_session=True,
                                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def net(self, commands):
        """Run ip(8) commands, one per line, in the machine's network; pids in them are outer ones."""
        done = subprocess.run(["nsenter", "-t", str(self.init.pid), "-n", "--", "ip", "-batch", "-"], check=False,
                              input="\n".join(commands) + "\n", capture_output=True, text=True, cwd="/",
                              env={"PATH": PATH})
        if done.returncode != 0:
            raise ClusterError(f"network of machine {self.name}: {done.stderr.strip()}")

    def path(self, inner):
        """Return the outer path of a file of the machine."""
        return f"/proc/{self.init.pid}/root{inner}"

    def log(self, what):
        with open(f"{self.base}/log/{what}.{self.name}", encoding="utf-8", errors="replace") as f:
            return f.read()

    # --- inspection ---

    def _is_own(self, process):
        name = os.path.basename(process.cmdline.partition(" ")[0].rstrip(":"))
        return process.pid == 1 or (process.uid == 0 and name in ("munged", *self.scheduler.daemons))

    def processes(self, spaces=None):
        """Return the machine's processes, except process 1 and its daemons. spaces: proc.pids_by_space()."""
        return [p for p in proc.processes(self.init.pid, spaces) if not self._is_own(p)] if self.up() else []

    def sockets(self, spaces=None):
        return proc.sockets(self.init.pid, self._is_own, spaces) if self.up() else []

    def files(self, top):
        return proc.files(self.init.pid, top, self.hidden) if self.up() else []
