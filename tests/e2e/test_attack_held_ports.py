"""Another user of the same machine wants the port on which a job's coordinator is about to listen."""

import os
import subprocess
import tempfile

import pytest

from support import DDRUN, LIMIT, clean_env, program, until

VICTIM, ATTACKER = 20001, 20002
SYSTEM_PYTHON = "/usr/bin/python3"  # another user may not read the tests' own
pytestmark = [
    pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users"),
]


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chown(top, VICTIM, VICTIM)
        yield top


def start(place, *args):
    return subprocess.Popen([DDRUN, "--nproc-per-node=2", *args], env=clean_env(HOME=place, TMPDIR=place), cwd=place,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **as_user(VICTIM))


@pytest.mark.parametrize("framework, options", [
    ((), ("SO_REUSEPORT", "SO_REUSEADDR")),       # JAX' gRPC
    ((), ("SO_REUSEPORT",)),
    (("--tf",), ("SO_REUSEADDR",)),               # TensorFlow's
])
def test_nobody_takes_the_port_of_a_coordinator(place, framework, options):
    path = f"{place}/port"
    job = start(place, *framework, SYSTEM_PYTHON, program("coordinator.py"), path, *options)
    try:
        until(lambda: os.path.exists(path) or job.poll() is not None, say="the port")
        with open(path) as f:
            port = f.read()
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
    assert (job.returncode, out, err) == (0, "coordinator: rank 0\n", "")
