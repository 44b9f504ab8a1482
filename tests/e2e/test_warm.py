"""--warm: workers that are forks of an interpreter, and differ in nothing from executed ones."""

import json
import os
import re
import signal
import subprocess
import textwrap
import time

import pytest

import support
from support import Job, clean_env, marked, parent, run, until, with_torch

# The agent may be silent for half of this, and is slow on a busy machine: no worker is executed instead.
PATIENT = "--heartbeat=60s"
HEAVY = """
import os
with open(os.environ["IMPORTS"], "a") as f:
    f.write("%d\\n" % os.getpid())
"""


def has_ctypes():
    return subprocess.run([support.PYTHON, "-c", "import ctypes"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_ctypes(), reason="DDRUN_PYTHON has no module ctypes")


@pytest.fixture
def place(tmp_path):
    """A directory with a script and a module that records each process that imports it."""
    (tmp_path / "heavy.py").write_text(HEAVY)
    return tmp_path


def script(place, text, name="train.py"):
    path = place / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def env(place, **more):
    return clean_env(IMPORTS=str(place / "imports"), XDG_CACHE_HOME=str(place / "cache"), **more)


def imports(place):
    """The pids of the processes that have imported the module."""
    path = place / "imports"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def warm(place, *arguments, **more):
    return run("--warm=heavy", PATIENT, *arguments, env=env(place, **more.pop("env", {})), **more)


def lines(r, key=None):
    """The JSON objects that workers have printed, by rank."""
    found = [json.loads(line) for line in r.out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda o: int(o[key or "rank"]))


# What a program can see of its own start.
SEEN = """
    import os, signal, sys, threading, resource
    import heavy

    def fds():
        found = {}
        for fd in os.listdir("/proc/self/fd"):
            try:
                found[fd] = os.readlink("/proc/self/fd/" + fd).split(":")[0]
            except OSError:
                pass
        return found

    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    import json
    print(json.dumps({
        "rank": os.environ["RANK"],
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "name": __name__, "file": __file__,
        "spec": __spec__ and [__spec__.name, __spec__.origin], "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
        "caller": str(sys._getframe().f_back and sys._getframe().f_back.f_code.co_name), "flags": list(sys.flags),
        "environ": dict(os.environ), "cwd": os.getcwd(), "fds": fds(),
        "session": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)), "blocked": status["SigBlk"], "ignored": status["SigIgn"],
        "caught": status["SigCgt"], "threads": status["Threads"], "umask": status.get("Umask"),
        "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)],
        "streams": [[s.name, s.mode, s.encoding, s.errors, s.line_buffering, getattr(s, "write_through", None), s.newlines,
                     type(s.buffer).__name__, s.fileno(), s.isatty()] for s in (sys.stdin, sys.stdout, sys.stderr)],
        "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "site": "sitecustomize" in sys.modules, "main": sys.modules["__main__"].__dict__ is globals(),
        "thread": threading.current_thread() is threading.main_thread(), "core": open("/proc/self/coredump_filter").read(),
    }), flush=True)
"""


def without_ids(environ):
    """The values of ports, ids, processes and file names differ between two runs."""
    return {k: "" if re.search("PORT|ADDRESS|ID|JOB|FILE|MARK|^DDRUN_STEPS$|^HOME$|^TMPDIR$", k) else v for k, v in environ.items()}


@pytest.mark.parametrize("arguments", [["train.py", "a", "b c"], ["-m", "train", "a"], ["python3", "-O", "train.py"]])
def test_a_worker_sees_what_it_sees_after_exec(place, arguments):
    script(place, SEEN)
    path = os.path.dirname(support.PYTHON) + ":" + os.environ["PATH"]
    executed = run("--nproc-per-node=2", *arguments, env=env(place, PATH=path), cwd=place)
    (place / "imports").unlink()
    forked = warm(place, "--nproc-per-node=2", *arguments, env={"PATH": path}, cwd=place)
    assert (executed.p.returncode, forked.p.returncode) == (0, 0), forked.err
    assert len(imports(place)) == 1, forked.err  # by the interpreter alone
    a, b = lines(executed), lines(forked)
    assert len(a) == len(b) == 2
    for before, after in zip(a, b):
        before["environ"], after["environ"] = without_ids(before["environ"]), without_ids(after["environ"])
        for name in before:
            assert before[name] == after[name], name



def interpreters(job):
    return job.processes("ddrun-warm")


SLEEPER = "import heavy, os, signal; print('up', os.environ['RANK'], flush=True); signal.pause()"


def test_workers_are_children_of_the_agent_and_end_with_the_job(place):
    with Job("--warm=heavy", PATIENT, "--nproc-per-node=2", script(place, SLEEPER), env=env(place)) as job:
        workers = until(lambda: len(job.workers()) == 2 and job.workers())
        assert [parent(w) for w in workers] == job.agents() * 2
        until(lambda: interpreters(job) == imports(place), say="the interpreter alone")  # a process between it and the workers may be ending
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM
        job.assert_nothing_left()


@pytest.mark.parametrize("victim", ["agent", "guardian"])
def test_nothing_is_left_after_kill_9(place, victim):
    with Job("--warm=heavy", PATIENT, script(place, SLEEPER), env=env(place)) as job:
        job.line("up")
        os.kill(job.agents()[0] if victim == "agent" else job.p.pid, signal.SIGKILL)
        job.wait()
        until(lambda: not marked(job.mark))
        job.assert_nothing_left()


def test_a_restart_forks_from_the_same_interpreter(place):
    text = script(place, """
        import heavy, os, sys
        print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1" else 0)
        """)
    r = warm(place, "--nproc-per-node=2", "--max-restarts=1", text)
    assert r.p.returncode == 0, r.err
    assert r.out.count("attempt 1") == 2
    assert len(imports(place)) == 1


def test_an_interpreter_that_is_killed_is_replaced(place):
    text = script(place, """
        import heavy, os, signal, sys
        print("up", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            signal.pause()
        """)
    with Job("--warm=heavy", PATIENT, "--max-restarts=1", text, env=env(place)) as job:
        job.line("up 0")
        worker, first = job.workers()[0], interpreters(job)[0]
        os.kill(first, signal.SIGKILL)
        until(lambda: len(imports(place)) == 2)
        os.kill(worker, signal.SIGKILL)
        assert job.wait() == 0, job.err
        assert len(imports(place)) == 2
        job.assert_nothing_left()


BREAKING = """
    import os
    fork, calls = os.fork, []

    def broken():
        calls.append(1)
        if len(calls) == 3:  # the first one forks the process that forks the workers
            WHAT
        return fork()

    os.fork = broken
    """


@pytest.mark.parametrize("what, why, patience", [("raise OSError(11, 'no more processes')", "(fork failed", "60s"),
                                                 ("import signal; signal.pause()", "forking 3 workers", "10s"),
                                                 ("os._exit(0)", "", "10s")])
def test_workers_are_executed_once_if_a_fork_fails(place, what, why, patience):
    (place / "breaking.py").write_text(textwrap.dedent(BREAKING).replace("WHAT", what))
    text = script(place, "import os; print('ran', os.environ['RANK'], flush=True)")
    r = run("--warm=breaking", f"--heartbeat={patience}", "--nproc-per-node=3", text, env=env(place))
    assert r.p.returncode == 0, r.err
    assert sorted(r.out.split("\n")) == ["", "ran 0", "ran 1", "ran 2"]
    assert "could not fork the workers" in r.err and why in r.err


@pytest.mark.parametrize("ending, code", [("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", 137), ("os._exit(5)", 5),
                                          ("raise KeyboardInterrupt", 130), ("os.abort()", 134), ("1 / 0", 1), ("pass", 0)])
def test_exit_codes_are_those_of_the_program(place, ending, code):
    r = warm(place, script(place, f"import heavy, os, signal, sys\n{ending}"))
    assert r.p.returncode == code, r.err
    assert len(imports(place)) == 1
    if ending == "1 / 0":
        traceback = r.err[r.err.index("Traceback"):]
        assert re.match(r'Traceback \(most recent call last\):\n  File "[^"]*train.py", line 2, in <module>\n', traceback)


def test_a_stop_does_not_wait_for_an_import(place):
    (place / "slow.py").write_text("import os, signal\nopen(os.environ['IMPORTS'], 'w').close()\nsignal.pause()\n")
    text = script(place, "print('ran', flush=True)")
    with Job("--warm=slow", PATIENT, text, env=env(place)) as job:
        until((place / "imports").exists)
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM
        assert "ran" not in job.out
        job.assert_nothing_left()


def test_workers_that_start_after_the_signal_before_the_end_get_it(place):
    """The nodes import one after the other; the signal is due from the beginning. Each worker receives it once."""
    (place / "slow.py").write_text(HEAVY + "import time\nwhile not os.path.exists('%s.%d' % (os.environ['IMPORTS'], os.getpid())):\n"
                                   "    time.sleep(0.05)\n")
    with Job("--warm=slow", PATIENT, "--simulate-nodes=2", "--nproc-per-node=1", "--signal-before-end=USR1@600",
             support.program("hear.py"), "USR1", env=env(place, SLURM_JOB_END_TIME=str(int(time.time()) + 600), GO=str(place / "go"), PYTHONPATH=str(place))) as job:
        until(lambda: len(imports(place)) == 2)
        leader = parent(job.processes("ddrund")[0])
        seen = ""
        for pid in sorted(imports(place), key=lambda p: parent(p) != leader):
            (place / f"imports.{pid}").touch()
            seen += job.line("SIGUSR1")
        (place / "go").touch()
        assert job.wait() == 0, job.err
        assert sorted(line["rank"] for line in support.json_lines(seen + job.out) if "signal" in line) == [0, 1], seen + job.out


@pytest.mark.parametrize("code, why", [
    ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "starts 1 thread"),
    ("import os\nos._exit(9)", "ends the interpreter (exited with code 9)"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "ends the interpreter (ended by signal 11)"),
    ("import sys\nsys.exit(1)", "fails (SystemExit: 1)"),
    ("import there_is_no_such_module", "fails (No module named 'there_is_no_such_module')"),
])
def test_a_module_that_cannot_be_shared_is_left_out(place, code, why):
    (place / "unfit.py").write_text(code)
    r = run("--warm=unfit,heavy", PATIENT, script(place, "import heavy, sys; print('unfit' in sys.modules)"), env=env(place))
    assert r.p.returncode == 0, r.err
    assert "False" in r.out
    assert "'unfit'" in r.err and why in r.err
    assert imports(place)  # the others are imported


# Replace /dev by a directory with the few files that a job needs and one that is named like that of a GPU.
WITH_GPU_FILE = """
mount -t tmpfs none "$1" && mkdir "$1/dri" "$1/shm" "$1/pts" && touch "$1/dri/card0" || exit
for name in null zero urandom random tty ptmx; do touch "$1/$name" && mount --bind "/dev/$name" "$1/$name" || exit; done
mount --bind /dev/shm "$1/shm" && mount --bind /dev/pts "$1/pts" && mount --move "$1" /dev && shift && exec "$@"
"""


def test_a_module_that_opens_a_file_of_a_gpu_is_left_out(place):
    (place / "dev").mkdir()
    in_place = ["unshare", "--mount", "sh", "-c", WITH_GPU_FILE, "sh", str(place / "dev")]
    if subprocess.run([*in_place, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount another /dev")
    (place / "gpu.py").write_text("card = open('/dev/dri/card0')\n")
    with Job("--warm=gpu,heavy", PATIENT, script(place, "import heavy, sys; print('gpu' in sys.modules)"), env=env(place), before=in_place) as job:
        assert job.wait() == 0, job.err
        assert "False" in job.out and "'gpu'" in job.err and "/dev/dri/card0" in job.err, job.err


def test_a_module_that_does_not_exist_is_named(place):
    r = run("--warm=heavy,no_such_module", PATIENT, script(place, "import heavy; print('ran')"), env=env(place))
    assert r.p.returncode == 0 and "ran" in r.out
    assert "no_such_module" in r.err
    assert len(imports(place)) == 1


def test_what_a_fork_could_break_works(place):
    text = script(place, """
        import atexit, faulthandler, multiprocessing, os, random, signal, subprocess, sys, threading, heavy

        def square(n):
            return n * n

        if __name__ == "__main__":
            # rank 1 calls exec below, and would leave the directory of multiprocessing
            for method in ("fork", "spawn", "forkserver") if os.environ["RANK"] == "0" else ():
                with multiprocessing.get_context(method).Pool(2) as pool:
                    assert pool.map(square, [1, 2, 3]) == [1, 4, 9], method
            assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE).stdout == b"42\\n"
            caught = []
            signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
            os.kill(os.getpid(), signal.SIGUSR1)
            assert caught == [1]
            done = []
            t = threading.Thread(target=lambda: done.append(1))
            t.start()
            t.join()
            assert done == [1]
            faulthandler.enable()
            faulthandler.dump_traceback()
            atexit.register(print, "at exit", flush=True)
            print("random", random.random(), flush=True)
            if os.environ["RANK"] == "1":
                os.execv(sys.executable, [sys.executable, "-c", "import os; print('executed', os.environ['RANK'])"])
        """)
    r = warm(place, "--nproc-per-node=2", text)
    assert r.p.returncode == 0, r.err
    numbers = re.findall(r"random (\S+)", r.out)
    assert len(set(numbers)) == 2, r.out
    assert "executed 1" in r.out and r.out.count("at exit") == 1
    assert re.search(r'File "[^"]*train.py", line \d+ in <module>', r.err)
    assert "Error" not in r.err


LIBRARIES = {"tqdm": """
    with open(os.environ["DIR"] + "/bar" + os.environ["RANK"], "w") as f:  # tqdm has a lock for processes and a thread of its own
        for _ in tqdm.tqdm(range(3), file=f, mininterval=0):
            pass
        assert tqdm.tqdm.get_lock() is not None
    done = 3
""", "numba": """
    import numpy

    @numba.njit(parallel=True)
    def total(values):
        s = 0.0
        for i in numba.prange(len(values)):
            s += values[i]
        return s

    done = int(total(numpy.ones(3)))
"""}


@pytest.mark.parametrize("module", LIBRARIES)
def test_a_library_works_in_workers_that_are_forked_after_its_import(place, module):
    if not support.has_module(support.PYTHON, module):
        pytest.skip(f"no {module} in DDRUN_PYTHON's environment")
    text = script(place, f"import os, sys\nassert {module!r} in sys.modules\nimport {module}\n" + textwrap.dedent(LIBRARIES[module])
                  + "print('done', done, flush=True)\n")
    r = run(f"--warm={module}", PATIENT, "--nproc-per-node=2", text, env=env(place, DIR=str(place)))
    assert r.p.returncode == 0 and r.out.count("done 3") == 2, r.err
    assert "--warm" not in r.err, r.err


def test_the_list_of_the_last_run_is_imported(place):
    text = script(place, "import sys; print('colorsys' in sys.modules); import colorsys")
    first = run("--warm", PATIENT, text, env=env(place))
    assert first.p.returncode == 0 and "False" in first.out, first.err
    plan = run("--warm", "--dry-run", text, env=env(place))
    assert re.search(r"--warm imports .* \(last run\)", plan.out), plan.out
    second = run("--warm", PATIENT, text, env=env(place))
    assert second.p.returncode == 0 and "True" in second.out, second.err


def test_a_failed_run_leaves_no_list(place):
    r = run("--warm", PATIENT, script(place, "import colorsys\n1 / 0"), env=env(place))
    assert r.p.returncode == 1
    assert not (place / "cache").exists()


def test_a_variable_that_python_reads_at_its_start_excludes_a_worker(place):
    text = script(place, "import heavy, os; print(os.environ['RANK'], os.environ.get('PYTHONHASHSEED'))")
    r = warm(place, "--nproc-per-node=2", "-x", "1:PYTHONHASHSEED=3", text)
    assert r.p.returncode == 0, r.err
    assert "0 None" in r.out and "1 3" in r.out
    assert "--warm does not apply to rank 1: its variable PYTHONHASHSEED differs from that of the interpreter" in r.err
    assert len(imports(place)) == 2  # the interpreter, and rank 1


def test_the_user_s_sitecustomize_runs(place):
    (place / "sitecustomize.py").write_text("import builtins\nbuiltins.MINE = 5\n")
    text = script(place, "import heavy, os, sys; print(MINE, sys.modules['sitecustomize'].__file__, os.environ['PYTHONPATH'])")
    r = warm(place, text, env={"PYTHONPATH": str(place)})
    assert r.p.returncode == 0, r.err
    assert r.out.split() == ["5", str(place / "sitecustomize.py"), str(place)]


def wrapper(place, text):
    path = place / "python-wrapped"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PYTHON_EXEC": str(path)}


def test_bad_input_is_one_sentence(place):
    text = script(place, "open('ran', 'w').close()")
    (place / "a.out").write_text("#!/bin/sh\ntouch ran\n")
    (place / "a.out").chmod(0o755)
    for arguments, word, more in [
            (["--warm", "--wrap=0:nice", text], "--wrap", {}),
            (["--warm", "--preload=0:libc.so.6", text], "--preload", {}),
            (["--warm", "./a.out"], "a.out", {}),
            (["--warm=a-b", text], "a-b", {}),
            (["--warm=,", text], "module", {}),
            (["--warm", support.PYTHON, "-I", text], "-I", {}),
            (["--warm", support.PYTHON, "-uE", text], "-uE", {}),
            (["--warm", text], "PYTHONPATH", wrapper(place, f'exec {support.PYTHON} -E "$@"')),
            (["--warm", text], "PYTHONPATH", wrapper(place, "unset PYTHONPATH\n" f'exec {support.PYTHON} "$@"'))]:
        r = run(*arguments, env=dict(env(place), **more), cwd=place)
        assert r.p.returncode == 2, (arguments, r.err)
        assert word in r.err and "--warm" in r.err and len(r.err.splitlines()) <= 2, r.err
        assert not (place / "ran").exists()


def test_a_python_that_is_too_old_is_named(place):
    """An interpreter that says so: a .pth file runs before the interpreter is asked."""
    subprocess.run([support.PYTHON, "-m", "venv", "--without-pip", str(place / "old")], check=True)
    packages, = (place / "old").glob("lib/python*/site-packages")
    (packages / "old.pth").write_text("import sys; sys.version_info = (3, 7, 17, 'final', 0)\n")
    r = run("--warm", script(place, "open('ran', 'w').close()"), env=env(place, PYTHON_EXEC=str(place / "old" / "bin" / "python")), cwd=place)
    assert r.p.returncode == 2 and not (place / "ran").exists()
    assert "--warm needs Python 3.8 or later: " in r.err and "is Python 3.7" in r.err and len(r.err.splitlines()) == 1, r.err


def test_the_dry_run_names_the_modules(place):
    r = run("--warm=json,heavy", "--dry-run", script(place, ""), env=env(place))
    assert r.p.returncode == 0
    assert "--warm imports json, heavy (--warm)" in r.out
    assert imports(place) == []


def test_workers_of_simulated_nodes(place):
    r = warm(place, "--simulate-nodes=2", "--nproc-per-node=2", script(place, "import heavy, os; print('rank', os.environ['RANK'])"))
    assert r.p.returncode == 0, r.err
    assert sorted(r.out.splitlines()) == [f"rank {i}" for i in range(4)]
    assert len(imports(place)) == 2


@with_torch
def test_torch_is_imported_once_and_seeded_for_each_worker(place):
    text = script(place, """
        import sys
        assert "torch" in sys.modules
        import os, random, torch, torch.distributed as dist, torch.utils.data as data
        import numpy
        dist.init_process_group("gloo")
        value = torch.ones(4)
        dist.all_reduce(value)
        assert value.sum().item() == 4 * dist.get_world_size()
        loader = data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
        assert sum(int(b.sum()) for b in loader) == 28
        print("seeds", torch.initial_seed(), torch.rand(1).item(), random.random(), numpy.random.rand(), flush=True)
        dist.destroy_process_group()
        os._exit(0)  # see train_torch.py
        """)
    r = run("--warm", PATIENT, "--nproc-per-node=2", text, env=env(place))
    assert r.p.returncode == 0, r.err
    seeds = [line.split()[1:] for line in r.out.splitlines() if line.startswith("seeds")]
    assert len(seeds) == 2
    assert all(a != b for a, b in zip(*seeds)), seeds
