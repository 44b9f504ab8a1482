"""--compile-cache with --warm: the interpreter imports while the caches arrive, and its workers are forked with complete ones."""

import os
import subprocess

import pytest

import support
from support import DDRUN, Job, built_with, in_small_mount, lines_with, program, run, some_line, told, until
from test_compile_cache import environment, job, kept
from test_stage import mounts

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(subprocess.run([support.PYTHON, "-c", "import ctypes"], capture_output=True, check=False).returncode != 0,
                                 reason="DDRUN_PYTHON has no module ctypes")]

# The agent may be silent for half of this, and is slow on a busy machine: no worker is executed instead.
PATIENT = "--heartbeat=60s"
# As JAX and Numba do, it reads the variable while it is imported.
HEAVY = """
import os
where = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
with open(os.environ["IMPORTS"], "a") as f:
    f.write("%d %s\\n" % (os.getpid(), where))
"""
COMPILE = """
import heavy, os
assert heavy.where == os.environ["TORCHINDUCTOR_CACHE_DIR"], heavy.where
with open(heavy.where + "/rank" + os.environ["RANK"], "a") as f:
    print("worker", os.getpid(), "found", *sorted(os.listdir(heavy.where)), flush=True)
"""


@pytest.fixture(name="place")
def make_place(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "heavy.py").write_text(HEAVY)
    return tmp_path


def env(place, **more):
    return environment(IMPORTS=str(place / "imports"), XDG_CACHE_HOME=str(place / "cache"), PYTHONPATH=str(place / "lib"), **more)


def arguments(place, text, *options):
    script = place / "train.py"
    script.write_text(text)
    return [PATIENT, "--warm=heavy", f"--compile-cache={place}/shared", "--nproc-per-node=1", *options, str(script)]


def imports(place):
    """The pids of the processes that have imported the module."""
    path = place / "imports"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def workers(text):
    """The pids of the workers, and what each has found."""
    found = [line.split() for line in lines_with(text, "worker")]
    return {int(words[1]): set(words[3:]) for words in found}


def test_forked_workers_begin_with_what_an_earlier_job_has_compiled(place):
    assert job(place, "sh", "-c", "echo x >$TORCHINDUCTOR_CACHE_DIR/earlier").p.returncode == 0
    done = run(*arguments(place, COMPILE, "--simulate-nodes=2"), env=env(place))
    assert done.p.returncode == 0 and not told(done.err), done.err
    found = workers(done.out)
    assert len(found) == 2 and all("earlier" in names for names in found.values()), done.out
    assert len(imports(place)) == 2 and not set(imports(place)) & set(found), "one import a node, in no worker"
    assert kept(place) == {"inductor/earlier", "inductor/rank0", "inductor/rank1"}


@pytest.fixture(name="held")
def make_held(place):
    """ddrun-stage reads nothing while this file exists. Return it and the variables for that."""
    library, held = place / "held_reads.so", place / "held"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("held_reads.c"), "-ldl"], check=True)
    held.touch()
    return held, {"LD_PRELOAD": str(library), "HELD_READS": str(held)}


def is_read(path):
    """Has a ddrun-stage opened this file?"""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read() == "ddrun-stage\n" and any(os.readlink(f"/proc/{pid}/fd/{fd}") == str(path) for fd in os.listdir(f"/proc/{pid}/fd")):
                    return True
        except OSError:
            continue
    return False


def test_what_is_compiled_during_an_import_is_not_mixed_with_the_caches(place, held):
    """Numba compiles functions with a declared signature when their module is imported."""
    held, variables = held
    script = "for d in $TORCHINDUCTOR_CACHE_DIR $NUMBA_CACHE_DIR; do echo job >$d/earlier; done"
    assert job(place, "sh", "-c", script).p.returncode == 0
    (place / "lib" / "heavy.py").write_text(HEAVY + """
import time
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
for place in (where, os.environ["NUMBA_CACHE_DIR"]):
    os.makedirs(place, exist_ok=True)
    for name in ("earlier", "new"):
        with open(place + "/" + name, "x") as f:
            f.write("import")
with open(os.environ["GO"] + "-on", "w"):
    pass
""")
    text = """import os
for name in ("TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR"):
    place = os.environ[name]
    print(name, {n: open(place + "/" + n).read() for n in os.listdir(place) if n[0] != "."})
    open(place + "/worker", "w").close()
"""
    with Job(*arguments(place, text), env=env(place, GO=str(place / "go"), **variables)) as j:
        (file,) = (place / "shared").glob("*/inductor/earlier")
        until(lambda: is_read(file), say="the reader")
        (place / "go").touch()
        until((place / "go-on").exists, say="the import")
        held.unlink()
        assert j.wait() == 0 and not told(j.err), j.err
        assert j.out.splitlines() == ["TORCHINDUCTOR_CACHE_DIR {'earlier': 'job\\n'}", "NUMBA_CACHE_DIR {'earlier': 'job\\n'}"]
    assert {"inductor/earlier", "inductor/worker"} == {name for name in kept(place) if name.startswith("inductor")}
    snapshots = [{n for n in os.listdir(snapshot) if n[0] != "."} for snapshot in (place / "shared").glob("*/numba/*")]
    assert sorted(snapshots, key=len) == [{"earlier"}, {"earlier", "worker"}]


def test_the_interpreter_imports_while_the_caches_are_read(place, held):
    held, variables = held
    assert job(place, "sh", "-c", "echo x >$TORCHINDUCTOR_CACHE_DIR/earlier").p.returncode == 0
    with Job(*arguments(place, COMPILE), env=env(place, **variables)) as j:
        until(lambda: imports(place), say="the import")
        held.unlink()
        assert j.wait() == 0, j.err
        (names,) = workers(j.out).values()
        assert names == {"earlier", "rank0"} and len(imports(place)) == 1, j.err


def test_a_restart_forks_workers_that_have_the_caches(place):
    text = """
import heavy, os, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    print("worker", os.getpid(), "found", *os.listdir(heavy.where), flush=True)
elif os.environ["RANK"] == "0":
    time.sleep(600)
else:
    open(heavy.where + "/old", "w").close()
    os.utime(heavy.where + "/old", (1, 1))  # else a killed worker may not have completed it
    os._exit(1)
"""
    done = run(*arguments(place, text, "--simulate-nodes=2", "--max-restarts=1"), env=env(place))
    assert done.p.returncode == 0, done.err
    found = workers(done.out)
    assert sorted(found.values(), key=len) == [set(), {"old"}], (done.out, done.err)
    assert len(imports(place)) == 2 and not set(imports(place)) & set(found)


@pytest.mark.skipif(not mounts(), reason="neither this user nor a user namespace may mount")
def test_an_interpreter_of_a_staged_copy_has_the_caches(place):
    assert job(place, "sh", "-c", "echo x >$TORCHINDUCTOR_CACHE_DIR/earlier").p.returncode == 0
    done = run(*arguments(place, COMPILE + "print('inode', os.stat(heavy.__file__).st_ino)", "--simulate-nodes=2", f"--stage={place}/lib"),
               env=env(place))
    assert done.p.returncode == 0 and not told(done.err), done.err
    found = workers(done.out)
    assert len(found) == 2 and all("earlier" in names for names in found.values()), done.out
    assert len(imports(place)) == 2 and not set(imports(place)) & set(found)
    assert f"inode {os.stat(place / 'lib' / 'heavy.py').st_ino}" not in done.out, "the workers have read the source"


def test_workers_of_a_node_without_caches_are_executed(place):
    small = place / "small"
    small.mkdir()
    mount = in_small_mount(small)
    assert job(place, "sh", "-c", "head -c 3000000 /dev/urandom >$TORCHINDUCTOR_CACHE_DIR/big").p.returncode == 0
    text = "import heavy, os; print('worker', os.getpid(), heavy.where, os.environ.get('TORCHINDUCTOR_CACHE_DIR'))"
    with Job(*arguments(place, text, f"--stage-dir={small}"), before=mount, env=env(place)) as j:
        assert j.wait() == 0, j.err
        assert some_line(j.err, "--warm does not apply to rank 0", "without --compile-cache"), j.err
        (line,) = lines_with(j.out, "worker")
        assert line.split()[2:] == ["None", "None"], line
