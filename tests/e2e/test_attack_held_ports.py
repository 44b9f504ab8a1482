"""Another user of the machine tries to take the port on which a job's coordinator is about to listen."""

import os
import subprocess
import tempfile

import pytest

from support import (ATTACKER, DDRUN, LIMIT, SYSTEM_PYTHON, VICTIM, as_two_users, as_user, clean_env, lines_with,
                     program, until)

pytestmark = as_two_users


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chown(top, VICTIM, VICTIM)
        yield top


def start(place, *args):
    return subprocess.Popen([DDRUN, "--nproc-per-node=2", *args], env=clean_env(HOME=place, TMPDIR=place), cwd=place,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **as_user(VICTIM))


def until_port(job, path):
    until(lambda: os.path.exists(path) or job.poll() is not None, say="the port")
    with open(path) as f:
        return f.read()


def attacked(place, *args):
    """Return exit code, stdout, stderr and port of a coordinator whose port the attacker tries to take before it listens."""
    path = f"{place}/port"
    job = start(place, *args[:-1], SYSTEM_PYTHON, program("coordinator.py"), path, *args[-1])
    try:
        port = until_port(job, path)
        with subprocess.Popen([SYSTEM_PYTHON, program("port_attacker.py"), port], stdout=subprocess.PIPE, text=True, cwd="/",
                              **as_user(ATTACKER)) as attacker:
            try:
                assert attacker.stdout.readline() == "tried\n"
                with open(f"{path}.go", "w"):
                    pass
                out, err = job.communicate(timeout=LIMIT)
            finally:
                attacker.terminate()
    finally:
        job.terminate()
        job.communicate(timeout=LIMIT)
    return job.returncode, out, err, port


@pytest.mark.parametrize("framework, options", [
    ((), ("SO_REUSEPORT", "SO_REUSEADDR")),       # JAX' gRPC
    ((), ("SO_REUSEPORT",)),
    (("--tf",), ("SO_REUSEADDR",)),               # TensorFlow's
])
def test_nobody_takes_the_port_of_a_coordinator(place, framework, options):
    assert attacked(place, *framework, options)[:3] == (0, "coordinator: rank 0\n", "")


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_coordinator_that_cannot_reuse_the_port_fails_and_the_taker_is_named(place, restarts):
    """Paddle sets SO_REUSEADDR alone, for which the kernel does not compare uids."""
    code, out, err, port = attacked(place, "--framework=paddle", f"--max-restarts={restarts}", ("SO_REUSEADDR",))
    assert len(lines_with(err, f"uid {ATTACKER} ", f"port {port}")) == 1, err
    if restarts == 0:
        assert code == 1, err
    else:
        assert (code, out.splitlines()[-1]) == (0, "coordinator: rank 0"), err
