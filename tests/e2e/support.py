"""Helpers of the end-to-end tests: run ddrun, find its processes, and assert that nothing is left."""

import atexit
import functools
import importlib.util
import json
import mmap
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
PYTHON = os.environ.get("DDRUN_PYTHON", sys.executable)
# Virtual environments with one library each, as contrib/check --all creates them.
VENVS = os.environ.get("DDRUN_VENVS") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddrun")
LIMIT = 300  # seconds; only to end a hang
KEY = "2f7c1d9e04b8a35f6611e0c97d4ab852c3a90e5b7714fd286b1f08e4952dca73"  # for DDRUN_KEY

CONFIG_HOME = tempfile.mkdtemp(prefix="ddrun-config-")
os.chmod(CONFIG_HOME, 0o755)
atexit.register(shutil.rmtree, CONFIG_HOME, ignore_errors=True)


def program(name):
    """Return the path of a worker script."""
    return os.path.join(HERE, "programs", name)


@functools.cache
def has_module(python, name):
    """True if this Python has the module. find_spec() avoids the seconds that an import takes."""
    if python == sys.executable:
        return importlib.util.find_spec(name) is not None
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def built_with(library):
    """True if configure found the library. Tests of what is built with it then fail, instead of being skipped, if it is
    missing."""
    config = os.path.join(BUILD, "config.h")
    if not os.path.exists(config):
        return False
    with open(config, encoding="utf-8") as f:
        return f"#define HAVE_{library} 1\n" in f.read()


# Users of the attack tests.
VICTIM, ATTACKER = 20001, 20002
SYSTEM_PYTHON = "/usr/bin/python3"  # another user may be unable to read the tests' own
as_two_users = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
                pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")]


def as_user(uid):
    """Return the arguments of subprocess that run a command as this uid."""
    return {"user": uid, "group": uid, "extra_groups": []}


def command_as(uid, *words):
    """Return a command that runs `words` as this uid."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]


with_torch = pytest.mark.skipif(not has_module(PYTHON, "torch"), reason="no torch in DDRUN_PYTHON's environment")


def _reads_frames():
    """Return why the memory of another process cannot be read here; "": it can."""
    child = subprocess.Popen(["sleep", "1000"])
    try:
        with open(f"/proc/{child.pid}/mem", "rb"):
            return ""
    except OSError as e:
        return f"the memory of another process cannot be read here: {e}"
    finally:
        child.kill()
        child.wait()


WHY_NO_FRAMES = _reads_frames()
with_frames = pytest.mark.skipif(WHY_NO_FRAMES != "", reason=WHY_NO_FRAMES)


def clean_env(**extra):
    """Return this environment without variables of schedulers and other launchers, and without functions that bash exported,
    whose names other shells do not pass on."""
    foreign = ("BASH_FUNC_", "SLURM_", "PBS_", "PET_", "DDRUN_KEY", "TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        env.pop(name, None)
    env["PYTHON_EXEC"] = PYTHON
    env["DDRUN_STACKS"] = "off"  # test_stacks.py has the tests; the others end sooner
    env["DDRUN_HEARTBEAT"] = "60s"  # a machine may stall one process for the 5 s of the default; tests of a silent node set their own
    env["DDRUN_STRAGGLER_INTERVAL"] = "0"  # beside other tests any rank may wait for a processor; test_load.py has the tests
    env["XDG_CONFIG_HOME"] = CONFIG_HOME  # no ddrun.toml of the developer; browsers, shells and podman may write there
    env.update(extra)
    return env


def without(*places):
    """Return a command prefix that mounts an empty file system over those of these directories that exist."""
    places = [place for place in places if os.path.isdir(place)]
    if places and os.geteuid() != 0:
        pytest.skip(f"this machine has {places[0]}, which only root can hide from a test")
    hide = "".join(f"mount -t tmpfs none {place} && " for place in places)
    return ["unshare", "--mount", "sh", "-c", f'{hide}exec "$@"', "sh"] if places else []


_environment = bytearray(4 << 20)  # the kernel permits 2 MiB, with the usual stack limit


def marked(mark):
    """Return the pids of the processes with this mark in their environment, except zombies. Tests call this often, and a machine
    has hundreds of processes: the buffer is used again, and open() would make three more system calls for each of them."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
        except OSError:
            continue
        try:
            size = os.readv(fd, [_environment])
            if _environment.find(mark.encode(), 0, size) >= 0:
                found.append(int(pid))
        except OSError:
            pass
        finally:
            os.close(fd)
    return found


def in_small_mount(place):
    """Return a command prefix that mounts a file system of 1 MiB at this directory; skip the test where that is impossible."""
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m,mode=1777 none {place} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    return mount


def kill_marked(mark):
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def blocks(pid, sig):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            return int(re.search(r"SigBlk:\s+(\S+)", f.read()).group(1), 16) >> (sig - 1) & 1 == 1
    except OSError:
        return False


def until(what, limit=LIMIT, say="it"):
    """Return the first true value of what(); fail after the limit. The calls take at most a sixth of the time at first, and less
    and less later."""
    end = time.monotonic() + limit
    pause = 0.01
    while True:
        began = time.monotonic()
        value = what()
        if value:
            return value
        assert time.monotonic() < end, f"{say() if callable(say) else say} did not come true within {limit} s"
        pause = min(max(1.3 * pause, 5 * (time.monotonic() - began)), 0.3)
        time.sleep(pause)


def answered(command, **more):
    """Run ddctl, and again if an agent or a daemon was too slow to answer it."""
    def ended():
        p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False,
                           **{"env": clean_env(), **more})
        return p if p.returncode == 0 or not re.search("answer|accept no", p.stderr) else None

    return until(ended, say=f"an answer to {command}")


def free_port():
    """Return a port that is free on all addresses and likely to stay so: below the ephemeral ports, thousands of which tests
    leave in TIME_WAIT, and outside the ranges of tests that run in parallel (pytest -n)."""
    first = 20000 + 500 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 20)
    for port in random.sample(range(first, first + 500), 100):
        try:
            with socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True):
                return port
        except OSError:
            pass
    raise AssertionError("no free port among 100")


class Job:
    """One run of ddrun; a mark in the environment identifies its processes. before: a command prefix."""

    def __init__(self, *args, env=None, cwd=None, stdin=subprocess.DEVNULL, build=None, home=None, tmp=None, before=(),
                 program=DDRUN):
        self.mark = "DDRUN_TEST_MARK=" + uuid.uuid4().hex
        env = dict(env or clean_env())
        name, value = self.mark.split("=")
        env[name] = value
        self.places = {n: tempfile.TemporaryDirectory(prefix="e2e") for n in ("TMPDIR", "HOME")}
        env.update({n: d.name for n, d in self.places.items()})
        if home is not None:  # shared with other nodes
            env["HOME"] = home
        if tmp is not None:
            env["TMPDIR"] = tmp
        self.shm = set(os.listdir("/dev/shm"))
        self.errors_seen = ""
        self.p = subprocess.Popen([*before, program, *args], env=env, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        kill_marked(self.mark)
        self.p.kill()
        self.p.communicate()
        for place in self.places.values():
            place.cleanup()

    def wait(self, limit=LIMIT):
        self.out, self.err = self.p.communicate(timeout=limit)
        return self.p.returncode

    def processes(self, name):
        return [pid for pid in marked(self.mark) if comm(pid) == name]

    def agents(self):
        """Return the agents: ddrun processes whose parent is a ddrun and which have no ddrun child. An agent blocks SIGTERM
        from its start; a child that does not is the probe of a file system that precedes the agent."""
        all_ = self.processes("ddrun")
        parents = {parent(p) for p in all_}
        return [p for p in all_ if p not in parents and blocks(p, signal.SIGTERM)]

    def workers(self):
        return [pid for pid in marked(self.mark) if comm(pid) not in ("ddrun", "ddrund", "ddrun-writer", "ddrun-keeper", "ddrun-metrics", "ddrun-timeline", "ddrun-warm", "ddrun-health", "ddrun-gpus", "ddrun-stacks",
                                                                              "")]

    def line(self, wanted, limit=LIMIT):
        """Read stdout up to a line that contains `wanted`; return the text."""
        seen = ""
        end = time.monotonic() + limit
        while wanted not in seen:
            ready, _, _ = select.select([self.p.stdout], [], [], max(0, end - time.monotonic()))
            chunk = os.read(self.p.stdout.fileno(), 65536).decode() if ready else ""
            if not chunk:
                kill_marked(self.mark)
                raise AssertionError(f"{'the end' if ready else 'no line'} came before {wanted!r}: {seen!r}; {self.p.communicate()[1]}")
            seen += chunk
        return seen

    def errors(self, wanted, count=1):
        """Return the stderr of ddrun so far, once it contains `wanted` `count` times. wait() puts the rest into err."""
        while self.errors_seen.count(wanted) < count:
            chunk = os.read(self.p.stderr.fileno(), 65536).decode(errors="replace")
            assert chunk, f"the end came before {wanted!r}: {self.errors_seen!r}"
            self.errors_seen += chunk
        return self.errors_seen

    def assert_nothing_left(self):
        left = [(pid, comm(pid)) for pid in marked(self.mark)]
        assert left == [], f"processes left: {left}"
        # PyTorch, TensorFlow and CUDA create these in a worker and leave them
        theirs = ("torchinductor_", "__autograph_generated_file", ".nv")
        files = {n: [f for f in os.listdir(d.name) if not f.startswith(theirs)] for n, d in self.places.items()}
        kept = os.path.join(self.places["HOME"].name, ".ddrun")  # the directory stays, and charges for the next run; keys do not
        if os.path.isdir(kept) and all(f.endswith(".charges") for f in os.listdir(kept)):
            files["HOME"].remove(".ddrun")
        files["/dev/shm"] = sorted(set(os.listdir("/dev/shm")) - self.shm)
        assert not any(files.values()), f"files left: {files}"


class Clock:
    """The monotonic clock of a job's ddrun and ddrund, which a test stops and advances. Workers keep the real clock."""

    def __init__(self, place):
        library, path = place / "clock.so", place / "clock"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("clock.c")], check=True)
        path.write_bytes(bytes(16))
        with open(path, "r+b") as f:
            self.numbers = mmap.mmap(f.fileno(), 16)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(path)}
        self.ahead = 0.0

    def stop(self):
        """Stop the clock slightly ahead: a process may have read the clock since, and it must never go back."""
        struct.pack_into("q", self.numbers, 0, time.monotonic_ns() + 10**6)

    def go(self):
        struct.pack_into("q", self.numbers, 0, 0)

    def advance(self, seconds):
        self.ahead += seconds
        struct.pack_into("q", self.numbers, 8, int(self.ahead * 1e9))


def run(*args, env=None, cwd=None, limit=LIMIT, before=()):
    """Run ddrun to its end and assert that it leaves nothing; return the Job with .out, .err and .p.returncode. before: a
    command prefix."""
    with Job(*args, env=env, cwd=cwd, before=before) as job:
        job.wait(limit)
        job.assert_nothing_left()
        return job


def told(err):
    """Return ddrun's messages without those about waiting for nodes, which ddrun prints after 5 s on a busy machine."""
    waits = re.compile(r"(ddrund?|ddctl)(\[[^]]*\])?: (waiting for |still waiting)")
    return "".join(line for line in err.splitlines(keepends=True) if not waits.match(line))


def without_tips(err):
    """Return the lines of an error message without its tips."""
    return [line for line in err.splitlines() if not line.startswith("  tip: ")]


def some_line(text, *parts):
    """True if one line contains all parts: the object of a message and a distinctive term, not a whole sentence."""
    return any(all(part in line for part in parts) for line in text.splitlines())


def lines_with(text, *parts):
    """Return the lines that contain all parts."""
    return [line for line in text.splitlines() if all(part in line for part in parts)]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
