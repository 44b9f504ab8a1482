"""Another user of the machine attacks a job's files: PMIx's directories, and the error files of failing workers."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from support import (ATTACKER, DDRUN, LIMIT, SYSTEM_PYTHON, VICTIM, as_two_users, as_user, built_with, clean_env, comm, marked, program,
                     until)

pytestmark = as_two_users


@pytest.fixture
def place():
    """Yield a directory with a directory like /tmp and the victim's home."""
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chmod(top, 0o755)
        for name, mode, uid in (("tmp", 0o1777, 0), ("home", 0o700, VICTIM), ("precious", 0o700, VICTIM), ("out", 0o755, VICTIM)):
            os.mkdir(f"{top}/{name}")
            os.chown(f"{top}/{name}", uid, uid)
            os.chmod(f"{top}/{name}", mode)
        for i in range(40):
            with open(f"{top}/precious/f{i}", "w") as f:
                os.chown(f.fileno(), VICTIM, VICTIM)
        yield top


@contextlib.contextmanager
def attacker(place):
    """Yield a dict that holds the attacker's report once the attacker has ended."""
    report = {}
    with subprocess.Popen([SYSTEM_PYTHON, program("tmp_attacker.py"), f"{place}/precious", f"{place}/tmp", "/dev/shm"],
                          stdout=subprocess.PIPE, text=True, cwd="/", **as_user(ATTACKER)) as p:
        try:
            assert p.stdout.readline() == "ready\n"
            yield report
        finally:
            p.terminate()
            report.update(json.loads(p.communicate(timeout=LIMIT)[0]))
            for name in os.listdir("/dev/shm"):
                path = f"/dev/shm/{name}"
                if name.startswith("ddrun_") and os.lstat(path).st_uid == ATTACKER:
                    (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)


def victim(place, *args, **extra):
    """Start ddrun as the victim, with the attacked directory as TMPDIR."""
    env = clean_env(**{"HOME": f"{place}/home", "TMPDIR": f"{place}/tmp", **extra})
    return subprocess.Popen([DDRUN, *args], env=env, cwd=f"{place}/home", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **as_user(VICTIM))


def left_of_victim(place):
    return [path for d in (f"{place}/tmp", "/dev/shm") for path in (f"{d}/{name}" for name in os.listdir(d))
            if os.lstat(path).st_uid == VICTIM]


@pytest.fixture(scope="module")
def mpi_sum():
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None or not built_with("PMIX"):
        pytest.skip("Open MPI or libpmix is missing (Debian: libopenmpi-dev, libpmix-dev)")
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chmod(top, 0o755)
        subprocess.run([compiler, "-O1", "-o", f"{top}/mpi_sum", program("mpi_sum.c")], check=True)
        os.chmod(f"{top}/mpi_sum", 0o755)  # executable by the victim under any umask
        yield f"{top}/mpi_sum"


def test_pmix_of_many_rounds_neither_deletes_for_another_user_nor_uses_his_directories(place, mpi_sum):
    def attacked():
        with attacker(place) as report:
            for _ in range(3):
                p = victim(place, "--mpi=pmix", "--nproc-per-node=2", "--max-restarts=6", mpi_sum, "before", "kill", "1", "6")
                out, err = p.communicate(timeout=LIMIT)
                assert (p.returncode, out.count("rank ")) == (0, 14), err
        assert report["used"] == []
        return report["seen"] > 0

    until(attacked, say="an attack that takes place")
    assert len(os.listdir(f"{place}/precious")) == 40
    assert left_of_victim(place) == []


def test_a_planted_text_never_becomes_the_first_cause(place):
    """The error file of the first attempt reveals its name. In later attempts the worker writes none, which leaves the attacker
    time."""
    worker = 'test $TORCHELASTIC_RESTART_COUNT = 0 && echo nonsense >$TORCHELASTIC_ERROR_FILE; sleep 0.3; exit 3'

    def attacked():
        with attacker(place) as report:
            for _ in range(2):
                p = victim(place, "--max-restarts=3", f"--report={place}/out/report.json", "sh", "-c", worker)
                _, err = p.communicate(timeout=LIMIT)
                assert p.returncode == 3, err
                with open(f"{place}/out/report.json") as f:
                    told = f.read()
                assert "PLANTED" not in err + told
                assert "code 3" in err
        return report["seen"] > 0

    until(attacked, say="an attack that takes place")
    assert left_of_victim(place) == []


def test_error_files_have_new_names_each_round_and_do_not_exist_before(place):
    p = victim(place, "--max-restarts=2", "sh", "-c", 'test ! -e "$TORCHELASTIC_ERROR_FILE" && echo "$TORCHELASTIC_ERROR_FILE"; exit 1')
    paths = p.communicate(timeout=LIMIT)[0].split()
    assert len(set(paths)) == 3
    assert {os.path.dirname(path) for path in paths} == {f"{place}/tmp"}
    assert left_of_victim(place) == []


@pytest.mark.parametrize("who", ["agent", "guardian"])
def test_no_error_file_is_left_after_kill_9(place, who):
    mark = "DDRUN_TEST_MARK=" + os.path.basename(place) + who
    p = victim(place, "sh", "-c", 'echo nonsense >"$TORCHELASTIC_ERROR_FILE"; echo ready; exec sleep 600',
               **dict([mark.split("=", 1)]))
    assert p.stdout.readline() == "ready\n"
    with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
        agent = next(int(pid) for pid in f.read().split() if comm(int(pid)) == "ddrun")
    os.kill(agent if who == "agent" else p.pid, signal.SIGKILL)
    p.communicate(timeout=LIMIT)
    until(lambda: not marked(mark), say="the end of all processes")
    assert left_of_victim(place) == []


def test_a_job_that_is_killed_as_a_whole_leaves_no_file(place):
    mark = "DDRUN_TEST_MARK=" + os.path.basename(place)
    p = victim(place, "sh", "-c", "echo ready; exec sleep 600", **dict([mark.split("=", 1)]))
    assert p.stdout.readline() == "ready\n"
    for pid in marked(mark):  # all at once, as a scheduler does
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    p.communicate(timeout=LIMIT)
    until(lambda: not marked(mark), say="the end of all processes")
    assert left_of_victim(place) == []


@pytest.mark.parametrize("name", ["all", "all/mine", "all/mine/deep", "link"])
def test_a_directory_that_others_can_replace_is_passed_over(place, name):
    """TMPDIR is a shared directory without the sticky bit, or lies below one."""
    for made, mode, uid in (("all", 0o777, 0), ("all/mine", 0o700, VICTIM), ("all/mine/deep", 0o700, VICTIM)):
        os.mkdir(f"{place}/tmp/{made}")
        os.chown(f"{place}/tmp/{made}", uid, uid)
        os.chmod(f"{place}/tmp/{made}", mode)
    os.symlink("all/mine", f"{place}/tmp/link")
    p = victim(place, "sh", "-c", 'echo "$TORCHELASTIC_ERROR_FILE"', TMPDIR=f"{place}/tmp/{name}")
    out, err = p.communicate(timeout=LIMIT)
    assert (p.returncode, err) == (0, "")
    assert out.startswith("/tmp/ddrun_")
    assert os.listdir(f"{place}/tmp/all/mine") == ["deep"]


def test_logs_without_a_log_directory_are_not_kept_where_others_can_replace_it(place):
    """Otherwise the attacker puts links there before a restart, and the worker's output goes to a file of the user."""
    os.mkdir(f"{place}/tmp/all")
    os.chmod(f"{place}/tmp/all", 0o777)
    p = victim(place, "--redirects=3", "--no-python", "true", TMPDIR=f"{place}/tmp/all")
    _, err = p.communicate(timeout=LIMIT)
    found = re.search(r"writing logs to '(.*/ddrun_[a-z0-9]+)/", err)
    assert p.returncode == 0 and found, err
    try:
        assert os.path.dirname(found.group(1)) == "/tmp" and os.listdir(f"{place}/tmp/all") == []
    finally:
        shutil.rmtree(found.group(1))


def test_a_link_to_a_directory_of_the_user_is_followed_once(place):
    os.symlink("../out", f"{place}/tmp/link")
    p = victim(place, "sh", "-c", 'echo "$TORCHELASTIC_ERROR_FILE"', TMPDIR=f"{place}/tmp/link")
    out, err = p.communicate(timeout=LIMIT)
    assert (p.returncode, err) == (0, "")
    assert out.startswith(f"{place}/out/ddrun_")


def plant(path):
    """Plant a file that everybody can write to; return the attacker's descriptor of it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.fchmod(fd, 0o666)
    os.fchown(fd, ATTACKER, ATTACKER)
    return fd


@pytest.mark.parametrize("option", ["report", "timeline", "metrics"])
def test_a_job_does_not_begin_if_another_user_holds_the_name_of_an_output_file(place, option):
    """Otherwise the attacker would read and change what ddrun writes, or the user would lose it at the end of a long job."""
    path = f"{place}/tmp/{option}.out"
    fd = plant(path)
    try:
        p = victim(place, f"--{option}={path}", "--no-python", "echo", "ran")
        out, err = p.communicate(timeout=LIMIT)
        assert (p.returncode, out, os.fstat(fd).st_size) == (2, "", 0), err
        assert f"--{option}: cannot write '{path}': it belongs to uid {ATTACKER}" in err and "tip: " in err
    finally:
        os.close(fd)


def test_a_timeline_replaces_the_file_of_another_user_instead_of_writing_to_it(place):
    """The directory has no sticky bit: its user can replace the file."""
    path = f"{place}/out/trace.json"
    fd = plant(path)
    try:
        p = victim(place, f"--timeline={path}", "--no-python", "true")
        _, err = p.communicate(timeout=LIMIT)
        assert (p.returncode, err, os.fstat(fd).st_size, os.stat(path).st_uid) == (0, "", 0, VICTIM)
        with open(path) as f:
            assert json.load(f)
    finally:
        os.close(fd)


FAILS = """echo '{"message": {"message": "boom"}}' >"$TORCHELASTIC_ERROR_FILE"; exit 3"""


def put_attackers(kind, path, target):
    """Create what the attacker leaves at the path, and what of the victim's it may name."""
    if kind == "link":
        os.symlink(target, path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "file":
        os.close(plant(path))
    else:
        os.link(target, path)  # where fs.protected_hardlinks is 0, the attacker can do this
    if kind != "hard link":
        os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)
    if kind == "pipe":
        os.chmod(path, 0o666)


@pytest.mark.parametrize("kind", ["link", "pipe", "file", "hard link"])
def test_a_copy_of_the_error_file_goes_to_nothing_that_another_user_has_planted(place, kind):
    """The kernel prevents it only where fs.protected_symlinks, _fifos, _regular and _hardlinks are set."""
    path, target = f"{place}/tmp/error.json", f"{place}/precious/f0"
    with open(target, "w") as f:
        f.write("precious")
    put_attackers(kind, path, target)
    p = victim(place, "--no-python", "sh", "-c", FAILS, TORCHELASTIC_ERROR_FILE=path)
    try:
        _, err = p.communicate(timeout=LIMIT)
    finally:
        p.kill()
    assert p.returncode == 3 and f"cannot write TORCHELASTIC_ERROR_FILE={path}: " in err, err
    with open(target) as f:
        assert f.read() == "precious"
    if kind == "file":
        assert os.path.getsize(path) == 0


@pytest.mark.parametrize("link", [False, True])
def test_a_copy_of_the_error_file_goes_to_what_is_the_users_own(place, link):
    path = f"{place}/tmp/error.json"
    if link:
        os.symlink(f"{place}/out/error.json", path)
        os.chown(path, VICTIM, VICTIM, follow_symlinks=False)
    p = victim(place, "--no-python", "sh", "-c", FAILS, TORCHELASTIC_ERROR_FILE=path)
    _, err = p.communicate(timeout=LIMIT)
    assert p.returncode == 3 and "cannot write" not in err, err
    with open(f"{place}/out/error.json" if link else path) as f:
        assert json.load(f)["message"]["message"] == "boom"


def test_a_timeline_does_not_truncate_a_file_of_the_user_that_another_user_has_linked(place):
    """Where fs.protected_hardlinks is 0, the attacker can make the link."""
    path, target = f"{place}/tmp/trace.json", f"{place}/precious/f0"
    with open(target, "w") as f:
        f.write("precious")
    os.link(target, path)
    p = victim(place, f"--timeline={path}", "--no-python", "true")
    _, err = p.communicate(timeout=LIMIT)
    with open(target) as f:
        assert (p.returncode, err, f.read()) == (0, "", "precious")
    with open(path) as f:
        assert json.load(f)


@pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")
@pytest.mark.parametrize("slash", ["", "/"])
def test_caches_are_not_kept_in_a_directory_of_the_user_that_another_user_has_chosen(place, slash):
    """The attacker plants the link before the user's first job with --compile-cache. Where fs.protected_symlinks is 1, the kernel
    refuses it, too."""
    os.symlink("../precious", f"{place}/tmp/cache")
    os.chown(f"{place}/tmp/cache", ATTACKER, ATTACKER, follow_symlinks=False)
    p = victim(place, f"--compile-cache={place}/tmp/cache{slash}", "--no-python", "true")
    _, err = p.communicate(timeout=LIMIT)
    assert p.returncode == 0 and f"cannot use '{place}/tmp/cache{slash}': Permission denied" in err, err
    assert len(os.listdir(f"{place}/precious")) == 40


@pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")
def test_files_are_not_collected_into_a_directory_of_the_user_that_another_user_has_chosen(place):
    """Where fs.protected_symlinks is 1, the kernel refuses the link, too."""
    os.symlink("../precious", f"{place}/tmp/results")
    os.chown(f"{place}/tmp/results", ATTACKER, ATTACKER, follow_symlinks=False)
    p = victim(place, f"--collect={place}/out/made:{place}/tmp/results", "--no-python", "sh", "-c", "echo x >../out/made")
    _, err = p.communicate(timeout=LIMIT)
    assert p.returncode == 0 and "--collect: not collected" in err and "Permission denied" in err, err
    assert len(os.listdir(f"{place}/precious")) == 40
