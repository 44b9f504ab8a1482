"""Another user replaces the private directory of ddrun.launch(), in a directory that both can write to, such as a group's."""

import contextlib
import os
import subprocess
import tempfile

import pytest

from support import ATTACKER, BUILD, LIMIT, SYSTEM_PYTHON, VICTIM, as_two_users, as_user, clean_env, program
from test_python import PACKAGE

pytestmark = as_two_users

LAUNCH = """
import os, sys, time
import ddrun
if __name__ == "__main__":
    print(ddrun.launch({function}, {args}, nproc_per_node=1, options=["--standalone"], directory=sys.argv[1]))
"""
RUNS = """
def work(mark):
    open(mark, "w").close()
    while not os.path.exists(mark + ".go"):
        time.sleep(0.01)
    return 7
"""


@pytest.fixture
def place():
    """Yield a directory with one that all can write to, without the sticky bit, and one of the victim in it."""
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chmod(top, 0o755)
        for name, mode, uid in (("shared", 0o777, 0), ("shared/precious", 0o755, VICTIM), ("out", 0o777, 0)):
            os.mkdir(f"{top}/{name}")
            os.chown(f"{top}/{name}", uid, uid)
            os.chmod(f"{top}/{name}", mode)
        with open(f"{top}/shared/precious/file", "w") as f:
            os.chown(f.fileno(), VICTIM, VICTIM)
        yield top


@contextlib.contextmanager
def attacker(place, kind, mark):
    with subprocess.Popen([SYSTEM_PYTHON, program("launch_attacker.py"), kind, f"{place}/shared", str(VICTIM), mark],
                          stdout=subprocess.PIPE, text=True, cwd="/", **as_user(ATTACKER)) as p:
        try:
            assert p.stdout.readline() == "ready\n"
            yield p
        finally:
            p.kill()


def victim(place, code, function, args):
    """Start a program of the victim that calls launch()."""
    with open(f"{place}/out/program.py", "w") as f:
        f.write(code + LAUNCH.format(function=function, args=args))
    env = clean_env(PYTHONPATH=PACKAGE, PATH=BUILD + os.pathsep + os.environ["PATH"], PYTHONDONTWRITEBYTECODE="1", HOME=f"{place}/out")
    return subprocess.Popen([SYSTEM_PYTHON, f"{place}/out/program.py", f"{place}/shared"], env=env, cwd=f"{place}/out",
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **as_user(VICTIM))


def test_a_planted_call_is_not_run(place):
    mark = f"{place}/out/planted"
    with attacker(place, "plant", mark) as other, victim(place, "", "os.getpid", "()") as p:
        assert other.stdout.readline() == "done\n"
        out, err = p.communicate(timeout=LIMIT)
    assert not os.path.exists(mark), err
    assert p.returncode != 0 and out == "", (out, err)
    assert "not a private directory" in err or "Operation not permitted" in err, err


def test_only_the_files_of_the_call_are_removed(place):
    mark = f"{place}/out/runs"
    with attacker(place, "swap", mark) as other, victim(place, RUNS, "work", f"({mark!r},)") as p:
        assert other.stdout.readline() == "done\n"
        with open(mark + ".go", "w"):
            pass
        out, err = p.communicate(timeout=LIMIT)
    left = {name for _, _, names in os.walk(f"{place}/shared") for name in names}
    assert left - {"report.json"} == {"file"}, (left, err)  # ddrun itself writes the report by its path
    assert (p.returncode, out) == (0, "[7]\n"), err
