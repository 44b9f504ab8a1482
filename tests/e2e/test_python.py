"""The Python package: ddrun.launch() and the binding of libddrun under the real ddrun.

LAUNCH_PYTHON  the Python that runs the package (default: the tests' own); 3.8 and 3.13 were tried
"""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest

from support import BUILD, DDRUN, HERE, LIMIT, PYTHON, Job, clean_env, has_module, json_lines, marked, parent, program, until
from test_slurm import slurm  # noqa: F401

LAUNCH_PYTHON = os.environ.get("LAUNCH_PYTHON", PYTHON)
TOP = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(TOP, "python")
PLACES = {"one node": ("--standalone",), "two nodes": ("--simulate-nodes=2",)}

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def package_env(**extra):
    """Return an environment with the package of the source tree and the programs of the build."""
    return clean_env(PYTHONPATH=PACKAGE, PATH=BUILD + os.pathsep + os.environ["PATH"], PYTHONDONTWRITEBYTECODE="1", **extra)


def launching(name, *options, code=None, env=None):
    """Start launching.py, or `code` in its place."""
    words = ["-c", code] if code is not None else [program("launching.py"), name, *options]
    return Job(*words, program=LAUNCH_PYTHON, env=env or package_env())


def outcome(name, *options, env=None):
    """Run launching.py and assert that it leaves nothing; return its JSON line and its Job."""
    with launching(name, *options, env=env) as job:
        code = job.wait()
        job.assert_nothing_left()
    assert code == 0, job.out + job.err
    return json_lines(job.out)[-1], job


@pytest.fixture(params=["pickle", "cloudpickle"])
def pickler_env(request, tmp_path):
    """Return the environment of a caller with or without cloudpickle."""
    if request.param == "cloudpickle" and not has_module(LAUNCH_PYTHON, "cloudpickle"):
        pytest.skip(f"no cloudpickle for {LAUNCH_PYTHON} (LAUNCH_PYTHON)")
    env = package_env(PICKLER=request.param)
    if request.param == "pickle":
        (tmp_path / "cloudpickle.py").write_text("raise ImportError")
        env["PYTHONPATH"] += os.pathsep + str(tmp_path)
    return env


@pytest.mark.parametrize("place", PLACES)
def test_results_come_back_by_rank_and_output_as_it_is_printed(place, pickler_env):
    seen, job = outcome("double", *PLACES[place], env=pickler_env)
    size = 2 if place == "one node" else 4
    assert seen["returned"] == [21 + rank for rank in range(size)]
    assert sorted(job.out.splitlines()[:-1]) == [f"line of rank {rank}" for rank in range(size)]


@pytest.mark.parametrize("place", PLACES)
def test_the_exception_of_a_worker_is_raised_with_its_traceback(place):
    seen, job = outcome("value", *PLACES[place])
    assert (seen["kind"], seen["rank"], seen["local_rank"], seen["exit_code"], seen["signal"]) == ("WorkerError", 1, 1, 1, None)
    assert seen["cause"] == "ValueError('boom in 1')" and seen["report"] == 1
    assert seen["traceback"].startswith("Traceback") and "in fail_in_rank" in seen["traceback"]
    assert "_run.py" not in seen["traceback"]
    assert seen["message"].startswith(f"rank 1 on {seen['node']} failed: ValueError: boom in 1")
    assert seen["message"].rstrip().endswith("ValueError: boom in 1")
    assert f"rank 1 on {seen['node']} failed" in job.err  # ddrun's own report appears as well


def test_an_exception_that_cannot_be_unpickled_is_reported_as_text():
    seen, _ = outcome("two")
    assert (seen["kind"], seen["rank"], seen["cause"]) == ("WorkerError", 1, "None")
    assert seen["traceback"].rstrip().endswith("TwoWords: first")


def test_a_result_that_cannot_be_pickled_is_the_error_of_its_rank():
    seen, _ = outcome("unpicklable")
    assert (seen["kind"], seen["rank"]) == ("WorkerError", 1) and "pickle" in seen["traceback"]


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_worker_is_reported_with_its_signal(place):
    seen, _ = outcome("kill", *PLACES[place])
    assert (seen["kind"], seen["rank"], seen["exit_code"], seen["signal"], seen["cause"]) == ("WorkerError", 1, 137, "SIGKILL", "None")
    assert seen["report"] == 137


def test_an_abort_while_the_interpreter_ends_loses_no_result():
    seen, job = outcome("late")
    assert seen["returned"] == ["result"]
    assert job.out.splitlines()[:-1] == ["of a pool", "of a thread", "at exit"], "threads and atexit functions end first"


def test_an_exit_code_of_a_worker_is_reported_and_an_early_exit_is_no_result():
    seen, _ = outcome("exit")
    assert (seen["kind"], seen["rank"], seen["exit_code"]) == ("WorkerError", 1, 5)
    with launching(None, code="import ddrun, os; ddrun.launch(os._exit, (0,))") as job:
        assert job.wait() == 1 and "LaunchError: rank 0 has left no result" in job.err
        job.assert_nothing_left()


def test_results_after_a_restart_are_those_of_the_last_round():
    seen, _ = outcome("once")
    assert seen["returned"] == [[1, 1], [1, 1]]


def test_a_job_that_cannot_start_raises_what_ddrun_reports():
    seen, _ = outcome("double", "--no-such-option")
    assert (seen["kind"], seen["exit_code"]) == ("LaunchError", 2) and "--no-such-option" in seen["message"]
    for words, kind in (("'true', options='--label'", "TypeError"), ("'true', options=['--report=x']", "ValueError"), ("3", "TypeError")):
        with launching(None, code=f"import ddrun; ddrun.launch({words})") as job:
            assert job.wait() == 1 and f"{kind}: " in job.err.splitlines()[-1]
            job.assert_nothing_left()


@pytest.mark.parametrize("words", ["abs, -21", "'echo', 'word'"])
def test_an_argument_that_is_no_sequence_starts_nothing(words):
    """A string would be split into its characters."""
    with launching(None, code=f"import ddrun; ddrun.launch({words})") as job:
        assert job.wait() == 1 and "TypeError: args must be a sequence, not " + words.split(", ")[1] in job.err, job.err
        assert job.out == ""
        job.assert_nothing_left()


def test_a_script_returns_0_or_raises_its_exit_code():
    seen, job = outcome("script", "0")
    assert seen == {"returned": 0} and sorted(job.out.splitlines()[:-1]) == ["script 0", "script 1"]
    seen, _ = outcome("script", "7")
    assert (seen["kind"], seen["exit_code"], seen["traceback"]) == ("WorkerError", 7, "")


def test_workers_get_the_environment_and_python_of_the_caller_and_no_input():
    seen, job = outcome("environment")
    [worker] = seen["returned"]
    assert (worker["ADDED"], worker["REMOVED"], worker["input"]) == ("a b", None, "")
    assert os.path.samefile(worker["python"], LAUNCH_PYTHON)
    # on one machine, the files of a call are not in the working directory
    assert worker["here"] == [] and len(worker["tmp"]) == 1


def both_stay(job):
    """Return the pids of the two workers."""
    seen = ""
    while seen.count("\n") < 2:
        seen += job.line("\n")
    return [int(pid) for pid in re.findall(r"pid (\d+)", seen)]


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_stops_the_job_and_then_raises(place):
    with launching("stay", *PLACES[place]) as job:
        both_stay(job)
        os.kill(job.p.pid, signal.SIGINT)
        assert job.wait() == 0 and job.out.endswith("interrupted\n"), job.err
        job.assert_nothing_left()


def test_ctrl_c_right_before_a_wait_for_output_stops_a_silent_job(tmp_path):
    library = tmp_path / "late_signal.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("late_signal.c"), "-ldl"], check=True)
    code = "import ddrun, os; del os.environ['LD_PRELOAD']; ddrun.launch('sleep', ['600'])"
    with launching(None, code=code, env=package_env(LD_PRELOAD=str(library))) as job:
        job.wait()
        assert job.err.endswith("KeyboardInterrupt\n"), job.err
        job.assert_nothing_left()


def test_a_second_ctrl_c_skips_the_grace_period():
    code = """
import ddrun
try:
    ddrun.launch("sh", ["-c", "trap '' TERM; echo ready; while :; do sleep 600; done"], options=["--shutdown-timeout=1h"])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with launching(None, code=code) as job:
        job.line("ready")

        def ended_by_ctrl_c():
            if not job.processes("ddrun"):
                return True
            os.kill(job.p.pid, signal.SIGINT)
            return False
        until(ended_by_ctrl_c)
        job.wait()
        until(lambda: not os.listdir(job.places["TMPDIR"].name))
        job.assert_nothing_left()


def test_the_job_ends_if_its_output_cannot_be_shown():
    code = """
import ddrun, sys
class Broken:
    def write(self, text):
        raise OSError("cannot show " + text)
    def flush(self):
        pass
sys.stdout = Broken()
ddrun.launch("sh", ["-c", "trap 'echo stopped; exit' TERM; echo line; while :; do sleep 0.1; done"])
"""
    with launching(None, code=code) as job:
        assert job.wait() == 1 and "OSError: cannot show line" in job.err
        job.assert_nothing_left()


def test_the_job_ends_and_its_files_disappear_if_the_caller_is_killed():
    with launching("stay") as job:
        both_stay(job)
        assert len(os.listdir(job.places["TMPDIR"].name)) == 1
        os.kill(job.p.pid, signal.SIGKILL)
        job.wait()
        until(lambda: not os.listdir(job.places["TMPDIR"].name))
        until(lambda: not marked(job.mark), say="the end of all processes")
        job.assert_nothing_left()


def test_a_killed_ddrun_is_a_failure_of_the_job():
    with launching("stay") as job:
        both_stay(job)
        [guardian] = [pid for pid in job.processes("ddrun") if parent(pid) == job.p.pid]
        os.kill(guardian, signal.SIGKILL)
        assert job.wait() == 0, job.err
        seen = json_lines(job.out)[-1]
        assert (seen["kind"], seen["exit_code"]) == ("LaunchError", 137)
        until(lambda: not marked(job.mark), say="the end of all processes")  # each is killed with its parent
        job.assert_nothing_left()


def test_the_files_of_a_call_are_private_to_the_user():
    with launching("stay") as job:
        both_stay(job)
        [name] = os.listdir(job.places["TMPDIR"].name)
        assert os.stat(os.path.join(job.places["TMPDIR"].name, name)).st_mode & 0o7777 == 0o700


def test_a_lambda_needs_cloudpickle(pickler_env):
    with launching("lambda", env=pickler_env) as job:
        code = job.wait()
        job.assert_nothing_left()
    if pickler_env["PICKLER"] == "cloudpickle":
        assert code == 0 and len(json_lines(job.out)[0]["returned"]) == 2
    else:
        assert code == 1 and "TypeError" in job.err and "tip: pip install cloudpickle" in job.err


def test_a_function_of_a_notebook_runs_with_cloudpickle(pickler_env):
    code = "import ddrun, os\nx = 5\ndef f(): return x + int(os.environ['RANK'])\nprint(ddrun.launch(f, nproc_per_node=2))"
    with launching(None, code=code, env=pickler_env) as job:
        job.wait()
        job.assert_nothing_left()
    if pickler_env["PICKLER"] == "cloudpickle":
        assert job.out == "[5, 6]\n", job.err
    else:
        assert "interactively\n  tip: pip install cloudpickle" in job.err


def test_a_worker_that_cannot_see_the_files_of_the_call_reports_it(tmp_path):
    runner = os.path.join(PACKAGE, "ddrun", "_run.py")
    with Job("--nproc-per-node=1", runner, tmp_path / "elsewhere", env=package_env(PYTHON_EXEC=LAUNCH_PYTHON)) as job:
        assert job.wait() == 1
        assert f"error: {tmp_path}/elsewhere is not visible on this node\n  tip: " in job.err


# ---- libddrun ----

@pytest.mark.parametrize("place", PLACES)
def test_every_call_of_the_library_on_all_ranks(place):
    nodes = 2 if place == "two nodes" else 1
    size = 2 * nodes
    seen, job = outcome("library", *PLACES[place])
    for rank, worker in enumerate(seen["returned"]):
        same = list(range(rank % 2, size, 2))
        assert worker["ranks"] == [rank, size, rank % 2, 2, rank // 2, nodes, 0, 0]
        assert (worker["get"], worker["broadcast"], worker["deleted"], worker["event"]) == ("\0value", "four", False, None)
        assert worker["all"] == ["x" * n for n in range(size)]
        assert worker["group"] == [same.index(rank), len(same), same]
        assert worker["final"] == 2 * size
    assert sorted(worker["sum"] for worker in seen["returned"]) == [2 * n + 2 for n in range(size)]


def test_errors_of_the_library_are_exceptions():
    seen, job = outcome("library-errors")
    missing, barrier, empty, null, negative, child, closed = seen["returned"][0]
    assert missing[:3] == ["Timeout", True, errno.ETIMEDOUT]
    assert barrier[:3] == ["Timeout", True, errno.ETIMEDOUT] and "rank 1" in barrier[3]
    assert empty[:3] == ["LibraryError", True, errno.EINVAL]
    assert null[0] == negative[0] == "ValueError" and "-1" in negative[3]
    assert child == 9  # a forked child must not use its parent's connection
    assert closed[:3] == ["LibraryError", True, errno.EBADF]


def test_a_call_that_waits_ends_when_a_worker_fails():
    seen, job = outcome("round-over")
    assert seen["returned"] == [1, 1] and f"RoundOver {errno.ECANCELED}" in job.out


def test_without_ddrun_a_process_is_rank_0_of_1():
    code = "import ddrun; w = ddrun.init(); w.barrier(); print(w.rank, w.size, w.allgather(b'a'), ddrun.hosts())"
    with launching(None, code=code) as job:
        assert job.wait() == 0, job.err
        assert job.out == f"0 1 [b'a'] ['{os.uname().nodename}']\n"


# ---- the package ----

def test_the_version_is_that_of_the_programs():
    done = subprocess.run([DDRUN, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    with launching(None, code="import ddrun; print(ddrun.__version__)") as job:
        job.wait()
    assert job.out.strip() in done.stdout.split()


def test_types_are_complete():
    if not has_module(LAUNCH_PYTHON, "mypy"):
        pytest.skip(f"no mypy for {LAUNCH_PYTHON} (LAUNCH_PYTHON)")
    done = subprocess.run([LAUNCH_PYTHON, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "-p", "ddrun"], cwd=PACKAGE, stdout=subprocess.PIPE,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    if shutil.which("make") is None:
        pytest.skip("no make on this machine")
    place = tmp_path_factory.mktemp("stage")
    subprocess.run(["make", "-C", BUILD, "-s", "install", f"DESTDIR={place}", "prefix=/usr"], check=True, stdout=subprocess.DEVNULL)
    return place


TRY = """
import ddrun, os
print(ddrun.find_program())
print(ddrun.launch(os.getenv, ("RANK",), nproc_per_node=2), ddrun.init().size)
"""


def try_package(place, programs):
    env = clean_env(PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="1")
    with Job("-c", TRY, program=LAUNCH_PYTHON, env=env) as job:
        assert job.wait() == 0, job.err
        assert job.out == f"{programs}/ddrun\n['0', '1'] 1\n"
        job.assert_nothing_left()


def test_an_installation_has_the_package_beside_the_programs(stage):
    try_package(stage / "usr/share/ddrun/python", stage / "usr/bin")


def test_a_wheel_has_the_package_and_finds_its_programs(stage, tmp_path):
    if not has_module(LAUNCH_PYTHON, "pip"):
        pytest.skip(f"no pip for {LAUNCH_PYTHON}")
    (tmp_path / "sources.json").write_text("[]")
    pack = [os.path.join(TOP, "contrib/packaging/wheel/pack.py"), "--stage", stage, "--sources", tmp_path, "--version=0.1.0",
            "--tag=linux_" + os.uname().machine, "--epoch=1600000000", "--out", tmp_path]
    wheel = subprocess.run([sys.executable, *pack], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
    assert sorted(n for n in names if n.startswith("ddrun/")) == [
        f"ddrun/{n}" for n in sorted(os.listdir(os.path.join(PACKAGE, "ddrun"))) if not n.startswith("__pycache__")]
    assert "hydra_plugins/ddrun_launcher.py" in names and not any("share/ddrun/python" in n for n in names)
    subprocess.run([LAUNCH_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
                    "--ignore-installed", "--prefix", tmp_path, wheel], check=True, timeout=LIMIT)
    [place] = tmp_path.glob("lib/python*/site-packages")
    try_package(place, tmp_path / "bin")


def test_the_examples_of_the_page_run(tmp_path):
    with open(os.path.join(TOP, "docs/python.md"), encoding="utf-8") as f:
        launched, worker = re.findall(r"```python\n(.*?)```", f.read(), re.DOTALL)
    with launching(None, code=launched) as job:  # which needs cloudpickle, or a file
        job.wait()
    if has_module(LAUNCH_PYTHON, "cloudpickle"):
        assert job.out == "[(0, 4), (1, 4), (2, 4), (3, 4)]\n", job.err
    path = tmp_path / "worker.py"
    path.write_text(worker)
    with Job("--nproc-per-node=2", path, env=package_env(PYTHON_EXEC=LAUNCH_PYTHON)) as job:
        assert job.wait() == 0, job.err
        assert sorted(job.out.splitlines()) == [f"{rank} 2 b'node1:4711' [0, 1]" for rank in range(2)]


# ---- an allocation ----

def test_launch_in_a_batch_script_runs_on_all_nodes_and_shares_the_working_directory(slurm):  # noqa: F811
    program_text = """
import ddrun, os, socket
def where():
    worker = ddrun.init()
    return (socket.gethostname(), worker.rank, len([n for n in os.listdir(".") if n.startswith(".ddrun-")]))
if __name__ == "__main__":
    print(ddrun.hosts(), ddrun.launch(where, nproc_per_node=2))
"""
    path = slurm.file("launch.py", program_text)
    shutil.copytree(PACKAGE, slurm.file("python"))
    env = {"PYTHONPATH": slurm.file("python"), "PATH": BUILD + os.pathsep + os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    with slurm.popen(["salloc", "-N2", "--ntasks-per-node=1", PYTHON, path], env=env) as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err
    names = slurm.cluster.names[:2]
    assert done.out.strip() == f"{names} {[(names[rank // 2], rank, 1) for rank in range(4)]}", done.err
    assert not [n for n in os.listdir(slurm.place) if n.startswith(".ddrun-")]
