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

    def __init__(self, argv):
        self.p = subprocess.Popen(argv, env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.pid = self.p.pid
        self.port = self._port(time.monotonic() + LIMIT)

    def _port(self, end):
        ready, _, _ = select.select([self.p.stdout], [], [], end - time.monotonic())
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


@pytest.fixture(scope="module")
def store(new_server):
    """Return a ddrund that serves a store."""
    return new_server()
