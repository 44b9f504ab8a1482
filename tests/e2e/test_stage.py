"""--stage: directories are copied to each node, and workers find the copies at the original paths."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

from support import ATTACKER, DDRUN, Job, built_with, clean_env, free_port, in_small_mount, lines_with, marked, run, some_line, told, until, without_tips

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")]

# Print the digest of all files below a directory, with their modes and the targets of links.
LOOK = """
import hashlib, os, sys
top = sys.argv[1]
h = hashlib.sha256()
for d, dirs, files in os.walk(top):
    dirs.sort()
    for f in sorted(files + [x for x in dirs if os.path.islink(os.path.join(d, x))]):
        p = os.path.join(d, f)
        st = os.lstat(p)
        h.update(os.path.relpath(p, top).encode() + b"%o %d " % (st.st_mode & 0o170777, st.st_mtime_ns))
        h.update(os.readlink(p).encode() if os.path.islink(p) else open(p, "rb").read())
print("digest", h.hexdigest(), "inode", os.stat(top).st_ino, flush=True)
"""


def look(top):
    return subprocess.run([sys.executable, "-c", LOOK, top], capture_output=True, text=True, check=True).stdout.split()[1]


def mounts(*words):
    """True if a process started by these words can mount something for itself."""
    mount = 'd=$(mktemp -d) && mount --bind "$d" "$d" && umount "$d"; rc=$?; rmdir "$d"; exit $rc'
    for unshare in (["unshare", "--mount"], ["unshare", "--map-current-user", "--mount"]):
        if subprocess.run([*words, *unshare, "sh", "-c", mount], capture_output=True, check=False).returncode == 0:
            return True
    return False


@pytest.fixture(name="source")
def make_source(tmp_path):
    top = tmp_path / "env"
    for i in range(30):
        below = top / "lib" / f"package{i}"
        below.mkdir(parents=True)
        for k in range(40):
            (below / f"module{k}.py").write_text(f"x = {i * k}\n" * (k + 1))
    (top / "bin").mkdir()
    tool = top / "bin" / "tool"
    tool.write_text(f"#!{top}/bin/shell\necho tool at $0\n")
    tool.chmod(0o755)
    os.symlink("/bin/sh", top / "bin" / "shell")
    os.link(tool, top / "bin" / "other-name")
    os.symlink("package1", top / "lib" / "link")
    (top / "large").write_bytes(os.urandom(3 << 20))
    (top / "empty").touch()
    return str(top)


def test_workers_of_all_nodes_find_the_copy_at_its_original_path(source):
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    job = run("--simulate-nodes=4", "--nproc-per-node=2", f"--stage={source}", "--log-level=info",
              sys.executable, "-c", LOOK, source)
    assert job.p.returncode == 0, job.err
    seen = [line.split() for line in job.out.splitlines()]
    assert {s[1] for s in seen} == {look(source)}
    inodes = {s[3] for s in seen}
    assert len(seen) == 8 and len(inodes) == 4 and str(os.stat(source).st_ino) not in inodes, "one copy a node"
    assert len(lines_with(job.err, "staged ")) == 4


def test_the_copy_is_read_only_where_it_is_mounted(source):
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    job = run(f"--stage={source}", "sh", "-c", f"touch {source}/new || echo refused")
    assert job.out == "refused\n", (job.out, job.err)
    assert not os.path.exists(f"{source}/new")
    job = run(f"--stage={source}", "sh", "-c", f"touch {source}/new")
    assert job.p.returncode == 1 and some_line(job.err, "tip: ", "copies of --stage"), job.err


def test_variables_and_scripts_point_to_the_copy_where_it_cannot_be_mounted(source):
    env = clean_env(PATH=f"{source}/bin:{os.environ['PATH']}", VIRTUAL_ENV=source, PYTHONPATH=f"{source}/lib:/other")
    job = run("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "--stage-mount=no", "--no-python",
              "sh", "-c", "tool; echo env $VIRTUAL_ENV path $PYTHONPATH; head -1 $VIRTUAL_ENV/bin/tool", env=env)
    assert job.p.returncode == 0, job.err
    assert source not in job.out, job.out
    assert len(lines_with(job.out, "tool at", "/0/bin/tool")) == 2
    assert len(lines_with(job.out, "env ", "/0/lib:/other")) == 2
    assert len(lines_with(job.out, "#!", "/0/bin/shell")) == 2


def test_a_node_without_namespaces_falls_back_to_variables(source):
    off = ["unshare", "--map-current-user", "sh", "-c", "echo 0 >/proc/sys/user/max_mnt_namespaces && "
           'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    if subprocess.run([*off, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot switch namespaces off for a process")
    assert not mounts(*off)
    with Job(f"--stage={source}", "--stage-keep", "--log-level=info", sys.executable, "-c", LOOK, source, before=off,
             env=clean_env(VIRTUAL_ENV=source)) as job:
        assert job.wait() == 0, job.err
        assert some_line(job.err, "staged ", "variables point there")
        assert some_line(job.err, "--stage-keep:", "keeps no copy", "cannot mount"), job.err
        job.assert_nothing_left()


def test_a_restarted_round_uses_the_same_copy(source):
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", f"--stage={source}", "--log-level=info",
              "sh", "-c", f"test -s {source}/large || exit 9; echo round $TORCHELASTIC_RESTART_COUNT; "
              "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 3")
    assert job.p.returncode == 0, job.err
    assert job.out.count("round 1") == 2
    assert len(lines_with(job.err, "staged ")) == 2, job.err


def test_a_node_that_joins_later_gets_the_copy(source, tmp_path):
    go = tmp_path / "go"
    script = (f"test -s {source}/large || exit 9; echo size $WORLD_SIZE; "
              f"if [ $DDRUN_ROUND = 0 ]; then [ $RANK = 1 ] && kill -9 $PPID; sleep 600; fi; touch {go}")
    job = run("--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=1", f"--stage={source}", "sh", "-c", script)
    assert job.p.returncode == 0, job.err
    assert go.exists()


def test_a_node_that_joins_later_gets_the_copy_of_another_and_not_the_source(source, tmp_path):
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    go = tmp_path / "go"
    script = (f"echo round $DDRUN_ROUND $(wc -c <{source}/large); [ $DDRUN_ROUND = 1 ] && exit; "
              f"until [ -e {go} ]; do sleep 0.05; done; [ $RANK = 1 ] && kill -9 $PPID; sleep 600")
    with Job("--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=1", f"--stage={source}", "sh", "-c", script) as job:
        job.line("round 0 3145728\nround 0 3145728")
        with open(f"{source}/large", "w", encoding="ascii") as f:
            f.write("changed")
        go.touch()
        job.line("round 1 3145728\nround 1 3145728")
        assert job.wait() == 0, job.err


def test_a_second_job_uses_the_kept_copy(source, tmp_path):
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    place = tmp_path / "place"
    place.mkdir()
    args = ["--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "--stage-keep", f"--stage-dir={place}", "--log-level=info",
            sys.executable, "-c", LOOK, source]
    seen = []
    for kept in (0, 2, 0):
        job = run(*args)
        assert job.p.returncode == 0, job.err
        used = len(lines_with(job.err, "used the kept copy"))
        assert len(lines_with(job.err, "staged ")) == 2, job.err
        # both nodes have one place: if the second looks there late, it finds the new copy of the first
        assert used == 2 if kept else used < 2, job.err
        assert os.listdir(place) == [f"ddrun-kept-{os.geteuid()}"]
        seen.append({tuple(line.split()[1::2]) for line in job.out.splitlines()})
        if kept:
            with open(f"{source}/large", "r+b") as f:
                f.write(b"changed")
    assert len(seen[0]) == 1 and seen[0] == seen[1] and seen[2] != seen[0]
    assert {s[0] for s in seen[2]} == {look(source)}
    assert len(os.listdir(place / f"ddrun-kept-{os.geteuid()}")) == 2


def test_a_kept_directory_of_another_user_is_not_used(source, tmp_path):
    if os.geteuid() != 0 or not mounts():
        pytest.skip("needs root and mounts")
    place = tmp_path / "place"
    planted = place / "ddrun-kept-0"
    planted.mkdir(parents=True)
    place.chmod(0o1777)
    os.chown(planted, ATTACKER, ATTACKER)
    args = ["--nproc-per-node=1", f"--stage={source}", "--stage-keep", f"--stage-dir={place}", sys.executable, "-c", LOOK, source]
    for plant in ("directory", "link"):
        job = run(*args)
        assert job.p.returncode == 0 and look(source) in job.out, job.err
        assert some_line(job.err, "--stage-keep: cannot keep the copy", str(planted)), job.err
        assert os.listdir(place) == ["ddrun-kept-0"], plant
        if plant == "directory":
            assert not os.listdir(planted)
            planted.rmdir()
            planted.symlink_to(tmp_path / "elsewhere")
            (tmp_path / "elsewhere").mkdir(mode=0o700)
    assert not os.listdir(tmp_path / "elsewhere")


def until_staging(job):
    """Wait until copies are made; on a busy machine the test may see the workers only after that."""
    return until(lambda: job.processes("ddrun-stage") or job.processes("sleep"))


@pytest.mark.parametrize("who", ["agent", "guardian", "helper"])
def test_nothing_is_left_after_kill_while_workers_wait(source, who):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "sleep", "600") as job:
        copying = until_staging(job)
        agents = until(lambda: len(job.agents()) == 2 and job.agents())
        victims = {"agent": agents, "guardian": [job.p.pid], "helper": copying}[who]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if who == "helper":
            job.p.send_signal(signal.SIGTERM)  # the copies may have been complete
        assert job.wait() != 0
        until(lambda: not marked(job.mark), say="the end of all processes")  # ddrun-keeper removes the files
        job.assert_nothing_left()


def test_nothing_is_left_after_kill_of_a_running_job(source):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "sh", "-c",
             f"test -s {source}/large && echo running; sleep 600") as job:
        job.line("running\nrunning")
        for pid in job.agents():
            os.kill(pid, signal.SIGKILL)
        assert job.wait() != 0
        job.assert_nothing_left()


def test_a_second_signal_while_unpacking_leaves_nothing(source):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "sleep", "600") as job:
        until_staging(job)
        for _ in range(2):
            job.p.send_signal(signal.SIGINT)
        assert job.wait() != 0
        job.assert_nothing_left()


@pytest.mark.parametrize("prepare, path, says", [
    (None, "missing", "No such file"),
    ("file", "file", "is not a directory"),
    (None, "a/../b", "contains '..'"),
    (None, "/", "root directory"),
    ("file", ". --stage-dir=.", "which --stage copies"),
    ("file", "{here} --stage-dir={here}/.", "which --stage copies"),
])
def test_a_path_that_cannot_be_staged_is_named_before_anything_starts(tmp_path, prepare, path, says):
    if prepare:
        (tmp_path / prepare).touch()
    path = path.format(here=tmp_path)
    job = run(*f"--stage={path}".split(), "touch", str(tmp_path / "started"), cwd=str(tmp_path))
    assert job.p.returncode == 2
    assert len(without_tips(told(job.err))) == 1 and says in job.err and path.rsplit("=", maxsplit=1)[-1] in job.err, job.err
    assert not (tmp_path / "started").exists()


def test_the_error_of_a_node_that_has_joined_is_whole_lines():
    job = run("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--insecure", "--stage=/", "true")
    assert job.p.returncode == 2 and job.err.endswith("\n  tip: name a directory in it\n"), job.err


@pytest.mark.parametrize("first, second, says, tip", [
    ("a", "a/b", "'{here}/a' and '{here}/a/b'", "omit the inner directory"),
    ("a/b", "a/", "'{here}/a' and '{here}/a/b'", "omit the inner directory"),
    ("a", "x.tar:{here}/a/x", "'{here}/a' and '{here}/a/x'", "--stage=FILE:DIR"),
    ("a", "x.tar:{here}/a", "'{here}/a' twice", ""),
])
def test_a_directory_in_another_one_is_refused(tmp_path, first, second, says, tip):
    """Both would be mounted, one below the other."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    with tarfile.open(tmp_path / "x.tar", "w"):
        pass
    job = run(f"--stage={first}", f"--stage={second.format(here=tmp_path)}", "touch", "started", cwd=str(tmp_path))
    assert job.p.returncode == 2 and says.format(here=tmp_path) in job.err and tip in job.err, job.err
    assert not (tmp_path / "started").exists()
    assert run("--dry-run", "--stage=a", "--stage=ab", "true", cwd=str(tmp_path)).p.returncode == 0


def test_dry_run_says_what_would_be_copied(source, tmp_path):
    job = run("--dry-run", f"--stage={source}", f"--stage-dir={tmp_path}", "true")
    assert job.p.returncode == 0, job.err
    assert some_line(job.out, "--stage copies", f"'{source}'", f"'{tmp_path}'"), job.out
    node = json.loads(run("--dry-run=json", f"--stage={source}", "true").out)
    assert source in node["stage"]
    assert not [x for x in os.listdir(tmp_path) if x != "env"]


@pytest.fixture(name="uv")
def make_uv(tmp_path):
    """A virtual environment as uv makes it, and its interpreter, which prints in which of them it runs, and in which round."""
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    venv, installed = tmp_path / "venv", tmp_path / "python"
    base = installed / "cpython-3.12.7-linux-x86_64-gnu"
    (base / "bin").mkdir(parents=True)
    (base / "bin/python").write_text(f"#!/bin/sh\nplace=copy; case $(realpath $0) in {installed}/*) touch {base}/mark 2>/dev/null && place=original;; esac\n"
                                     f"echo $place $DDRUN_ROUND; exec sh \"$@\"\n")
    (base / "bin/python").chmod(0o755)
    (installed / "cpython-3.12-linux-x86_64-gnu").symlink_to(base)
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(installed / "cpython-3.12-linux-x86_64-gnu/bin/python")
    (venv / "pyvenv.cfg").write_text(f"home = {installed}/cpython-3.12-linux-x86_64-gnu/bin\nimplementation = CPython\nuv = 0.13.9\n")
    return venv, base


def test_the_interpreter_that_uv_has_installed_is_copied_too(uv, tmp_path):
    venv, base = uv
    args = ["--nproc-per-node=1", f"--stage={venv}", f"--stage-dir={tmp_path}"]
    for nodes, before in ((["--simulate-nodes=1"], []), (["--simulate-nodes=4"], []), (["--simulate-nodes=2"], [f"--stage={base}"])):
        job = run(*nodes, *args, *before, "--no-python", str(venv / "bin/python"), "-c", "true")
        assert job.p.returncode == 0 and set(job.out.splitlines()) == {"copy 0"}, (job.out, job.err)
        assert job.err == "", job.err
    assert f"'{venv}', '{base.parent}/cpython-3.12-" in run("--dry-run", *args, str(venv / "bin/python")).out
    job = run(*args, "--stage-mount=no", "--no-python", str(venv / "bin/python"), "-c", "true")
    assert job.out == "copy 0\n", job.err


def test_an_interpreter_is_kept_with_its_environment(uv, tmp_path):
    venv, _ = uv
    args = ["--simulate-nodes=2", "--nproc-per-node=1", f"--stage={venv}", f"--stage-dir={tmp_path}", "--stage-keep", "--log-level=info"]
    for again in (False, True):
        job = run(*args, "--no-python", str(venv / "bin/python"), "-c", "true")
        assert job.p.returncode == 0 and job.out == "copy 0\n" * 2, (job.out, job.err)
        assert (len(lines_with(job.err, "used the kept copy")) == 2) == again, job.err  # the nodes share the directory


def test_a_node_that_joins_later_gets_the_interpreter_from_another_node(uv, tmp_path):
    """The first node of round 1 has copies; the node that joins cannot read the sources."""
    venv, base = uv
    go = tmp_path / "go"
    script = f"[ $DDRUN_ROUND = 1 ] && exit; until [ -e {go} ]; do sleep 0.05; done; [ $RANK = 1 ] && kill -9 $PPID; sleep 600"
    with Job("--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=1", f"--stage={venv}", "--no-python", str(venv / "bin/python"), "-c", script) as job:
        job.line("copy 0\ncopy 0")
        for path in (venv / "pyvenv.cfg", base / "bin/python"):
            path.rename(f"{path}.away")
        go.touch()
        job.line("copy 1\ncopy 1")
        assert job.wait() == 0, job.err


def test_an_unreadable_file_is_named(source, tmp_path):
    secret = os.path.join(source, "secret")
    with open(secret, "w", encoding="utf-8"):
        pass
    os.chmod(secret, 0)
    if os.access(secret, os.R_OK):
        pytest.skip("this user may read every file")
    job = run("--simulate-nodes=2", f"--stage={source}", "touch", str(tmp_path / "started"))
    assert job.p.returncode == 2
    assert some_line(job.err, "secret", "Permission denied"), job.err
    assert not (tmp_path / "started").exists()


def test_a_node_without_space_is_named(source, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = in_small_mount(small)
    with Job("--simulate-nodes=2", f"--stage={source}", f"--stage-dir={small}", "touch", str(tmp_path / "started"),
             before=mount) as job:
        assert job.wait() == 2, job.err
        assert some_line(job.err, "not enough space on sim", str(small)), job.err
        assert "--stage-dir" in job.err
        assert not (tmp_path / "started").exists()
        job.assert_nothing_left()


def test_the_node_on_which_the_helper_dies_is_named(source, tmp_path):
    """The first node reports it. The helper that starts second dies before its copy can be complete."""
    for name in ("ddrun", "ddrund", "ddrun-openssl.so"):
        shutil.copy(os.path.join(os.path.dirname(DDRUN), name), tmp_path)
    helper = tmp_path / "ddrun-stage"
    helper.write_text(f"""#!/bin/sh
[ "$1" = serve ] && ! /bin/mkdir {tmp_path}/first 2>/dev/null && kill -9 $$
exec {DDRUN}-stage "$@"
""")
    helper.chmod(0o755)
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={source}", "true", program=str(tmp_path / "ddrun")) as job:
        assert job.wait() == 2, job.err
        job.assert_nothing_left()
    assert some_line(job.err, "ddrun-stage exited unexpectedly", " on sim"), job.err


def test_special_files_are_left_out_with_a_warning(source):
    os.mkfifo(os.path.join(source, "fifo"))
    job = run(f"--stage={source}", "--stage-mount=no", "sh", "-c", "ls $VIRTUAL_ENV", env=clean_env(VIRTUAL_ENV=source))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "skipped 1", "fifo")
    assert "large" in job.out and "fifo" not in job.out


def test_a_program_that_does_not_exist_is_named(source):
    job = run(f"--stage={source}", "--no-python", f"{source}/bin/none")
    assert job.p.returncode != 0
    assert "bin/none" in job.err, job.err
