"""Fixtures of all end-to-end tests. Helpers without set-up and tear-down are in support.py.

DDRUN_BUILD  the build directory with ./ddrun and ./ddrund
DDRUND       another program to serve the store (default: ./ddrund there)
"""

import os
import re
import select
import signal
import subprocess
import time

import pytest

from support import BUILD, HERE, LIMIT, PYTHON, Clock, clean_env

DDRUND = os.environ.get("DDRUND", os.path.join(BUILD, "ddrund"))
RELAYED = [os.path.join(BUILD, "tests/tools/storeserve"), "--relay", "--listen=127.0.0.1:0"]  # a store behind a relay
TORCH_STORE = [PYTHON, os.path.join(HERE, "programs", "torch_store.py")]


# Restore the default dispositions: shells start background commands with SIGINT and SIGQUIT ignored, nohup with SIGHUP, and the
# programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for sig in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(sig, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """Give every test that has no time limit one, which only ends a hang."""
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT * 2))


def pytest_generate_tests(metafunc):
    """Run the tests of a module that has STORES with each of these stores: "direct" (ddrund) and "relay"."""
    stores = getattr(metafunc.module, "STORES", None)
    if stores is not None and "new_server" in metafunc.fixturenames:
        metafunc.parametrize("new_server", stores, indirect=True, scope="module")


class Server:
    """A server process that prints "listening on ADDRESS:PORT" as its first line."""

    def __init__(self, argv, stdin=subprocess.DEVNULL):
        self.p = subprocess.Popen(argv, env=clean_env(), stdin=stdin, stdout=subprocess.PIPE, text=True)
        self.pid = self.p.pid
        self.port = self.next_port()

    def next_port(self):
        ready, _, _ = select.select([self.p.stdout], [], [], LIMIT)
        line = self.p.stdout.readline() if ready else ""
        found = re.search(r"listening on \S+:(\d+)$", line.strip())
        assert found, f"{self.p.args} said {line!r}"
        return int(found.group(1))

    def rss(self):
        """Return the resident memory in bytes."""
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024

    def stop(self):
        self.p.terminate()
        try:
            self.p.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def _limit_memory(folder, v2, mib):
    with open(folder + ("/memory.max" if v2 else "/memory.limit_in_bytes"), "w", encoding="ascii") as f:
        f.write(str(mib << 20))
    if v2:
        with open(folder + "/memory.swap.max", "w", encoding="ascii") as f:
            f.write("0")


def _remove_cgroup(folder):
    end = time.monotonic() + LIMIT
    while os.path.isdir(folder) and time.monotonic() < end:  # a process that was killed belongs to it until it is reaped
        try:
            os.rmdir(folder)
        except OSError:
            time.sleep(0.05)


@pytest.fixture
def small_memory():
    """Yield small_memory(mib): a command prefix that puts the command into a cgroup of this size."""
    v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    folder = ("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory") + f"/ddrun-test-{os.getpid()}"

    def limit(mib):
        try:
            os.mkdir(folder)
            _limit_memory(folder, v2, mib)
        except OSError as e:
            pytest.skip(f"no cgroup with a memory limit can be made here: {e}")
        return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]

    yield limit
    _remove_cgroup(folder)


@pytest.fixture
def small_disk(tmp_path):
    """Return a command prefix that mounts a file system of 1 MiB, and its directory. Without root, /dev/full stands in for it."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        return [], "/dev"
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m none {place} && exec "$@"', "sh"], str(place)


@pytest.fixture(scope="module")
def new_server(request):
    """Yield new_server(argument...), which starts ddrund, or with argv=[...] another program. With the parameter
    "relay" it starts a store behind a relay instead of ddrund."""
    servers = []
    ours = RELAYED if getattr(request, "param", "direct") == "relay" else [DDRUND, "--insecure", "--listen=127.0.0.1:0"]

    def start(*args, argv=None):
        servers.append(Server(argv or [*ours, *args]))
        return servers[-1]

    yield start
    for s in servers:
        s.stop()


@pytest.fixture(scope="session")
def torch_store():
    """Yield torch_store(), which returns the port of an empty store of torch's own server. One process serves all of them: to
    import torch takes seconds."""
    server = Server(TORCH_STORE, stdin=subprocess.PIPE)

    def new():
        server.p.stdin.write("\n")
        server.p.stdin.flush()
        return server.next_port()

    yield new
    server.stop()
    server.p.stdin.close()


@pytest.fixture(scope="module")
def store(new_server):
    """Return a ddrund that serves a store."""
    return new_server()
