"""--compile-cache: what the nodes compile comes back, and later jobs begin with it."""

import json
import os
import signal
import threading
import time

import pytest

from support import DDRUN, Job, built_with, clean_env, in_small_mount, run, some_line, told, until, without_tips

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")]

VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "CUDA_CACHE_PATH", "MIOPEN_USER_DB_PATH",
             "MIOPEN_CUSTOM_CACHE_DIR", "NUMBA_CACHE_DIR")
# Each rank compiles its own unit, unless its cache has that of all ranks.
COMPILE = """
    cd $TORCHINDUCTOR_CACHE_DIR && mkdir -p ab locks && touch locks/x.lock || exit 9
    if [ -e ab/rank0 -a -e ab/rank1 -a -e ab/rank2 ]; then echo rank $RANK found $(cat ab/*); else echo compiled >ab/rank$RANK; fi"""


def environment(**extra):
    env = clean_env(**extra)
    return {k: v for k, v in env.items() if k not in VARIABLES or k in extra}


def job(place, *args, nodes=1, env=None, dir_=None):
    return run(f"--compile-cache={dir_ or place / 'shared'}", f"--simulate-nodes={nodes}", "--nproc-per-node=1", *args, env=env or environment())


def kept(place):
    """The files in DIR, without the directory for this kind of processor."""
    found = set()
    for d, _, files in os.walk(place / "shared"):
        found |= {os.path.relpath(os.path.join(d, f), place / "shared").partition("/")[2] for f in files}
    return found


def kind(place):
    """The directory in DIR for this kind of processor. It exists after a job."""
    (name,) = os.listdir(place / "shared")
    return place / "shared" / name


def test_a_later_job_begins_with_what_all_nodes_have_compiled(tmp_path):
    first = job(tmp_path, "sh", "-c", COMPILE, nodes=3)
    assert first.p.returncode == 0 and not told(first.err), first.err
    assert kept(tmp_path) == {f"inductor/ab/rank{i}" for i in range(3)}  # no lock
    second = job(tmp_path, "sh", "-c", COMPILE, nodes=4)
    assert second.p.returncode == 0 and not told(second.err), second.err
    assert sorted(second.out.splitlines()) == [f"rank {i} found compiled compiled compiled" for i in range(4)]


def test_a_staged_copy_and_local_caches_serve_one_job(tmp_path):
    source = tmp_path / "env"
    source.mkdir()
    (source / "text").write_text("staged\n")
    script = f"""stat -c %i $VIRTUAL_ENV/text; cat $VIRTUAL_ENV/text; {COMPILE}"""
    inode = str(os.stat(source / "text").st_ino)
    for found in ([], ["rank 0 found compiled compiled", "rank 1 found compiled compiled"]):
        done = job(tmp_path, f"--stage={source}", "--no-python", "sh", "-c", script.replace(" -a -e ab/rank2", ""), nodes=2,
                   env=environment(VIRTUAL_ENV=str(source)))
        assert done.p.returncode == 0 and not told(done.err), done.err
        lines = done.out.splitlines()
        assert lines.count("staged") == 2 and inode not in lines, "the workers have read the source"
        assert sorted(line for line in lines if "found" in line) == found
    assert kept(tmp_path) == {"inductor/ab/rank0", "inductor/ab/rank1"}


def test_each_tool_finds_a_private_directory_unless_the_user_has_named_one(tmp_path):
    script = "".join(f'[ -d "${name}" ] || echo no {name}; ' for name in VARIABLES if name != "TRITON_CACHE_DIR")
    script += 'echo "$TRITON_CACHE_DIR"; stat -c %a ${TORCHINDUCTOR_CACHE_DIR%/*/*}; echo ${TORCHINDUCTOR_CACHE_DIR%/*/*}'
    done = job(tmp_path, "sh", "-c", script, env=environment(TRITON_CACHE_DIR="/mine"))
    assert done.p.returncode == 0, done.err
    mine, mode, where = done.out.splitlines()
    assert (mine, mode) == ("/mine", "700") and not os.path.exists(where)


def test_a_failure_keeps_what_was_complete(tmp_path):
    """A worker that is killed may have been writing a file: one that has changed just before does not come."""
    script = "cd $TORCHINDUCTOR_CACHE_DIR; echo x >old; touch -d '1 minute ago' old; echo x >half; sh -c 'kill -9 $PPID'; sleep 60"
    done = job(tmp_path, "sh", "-c", script)
    assert done.p.returncode == 137, done.err
    assert kept(tmp_path) == {"inductor/old"}


def test_a_restart_has_the_cache_but_not_what_a_killed_worker_was_writing(tmp_path):
    script = ("cd $TORCHINDUCTOR_CACHE_DIR; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && { ls; exit 0; }; "
              "echo x >old; touch -d '1 minute ago' old; echo x >half; sh -c 'kill -9 $PPID'; sleep 60")
    done = job(tmp_path, "--max-restarts=1", "sh", "-c", script)
    assert done.p.returncode == 0 and done.out == "old\n", done.err
    assert kept(tmp_path) == {"inductor/old"}


def test_a_file_that_exists_is_never_replaced(tmp_path):
    job(tmp_path, "sh", "-c", "echo first >$TORCHINDUCTOR_CACHE_DIR/x")
    os.utime(kind(tmp_path) / "inductor/x", (1e9, 1e9))
    done = job(tmp_path, "sh", "-c", "cat $TORCHINDUCTOR_CACHE_DIR/x; echo second >$TORCHINDUCTOR_CACHE_DIR/x")
    assert done.out == "first\n", done.err
    assert (kind(tmp_path) / "inductor/x").read_text() == "first\n"
    assert os.stat(kind(tmp_path) / "inductor/x").st_mtime > 1e9, "the file was used, and is not marked as such"


def test_two_jobs_that_end_at_once_leave_each_file_whole(tmp_path):
    script = f"""cd $TORCHINDUCTOR_CACHE_DIR; for i in $(seq 200); do head -c 20000 /dev/zero | tr '\\0' $JOB >f$i; done
                 touch {tmp_path}/at-$JOB-$RANK; until [ $(ls {tmp_path} | grep -c ^at-) = 4 ]; do sleep 0.05; done"""
    jobs = [threading.Thread(target=job, args=(tmp_path, "sh", "-c", script), kwargs={"nodes": 2, "env": environment(JOB=name)}) for name in "ab"]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert kept(tmp_path) == {f"inductor/f{i}" for i in range(1, 201)}
    for i in range(1, 201):
        assert (kind(tmp_path) / f"inductor/f{i}").read_bytes() in (b"a" * 20000, b"b" * 20000)


def test_a_tool_whose_files_refer_to_each_other_keeps_the_newest_whole(tmp_path):
    """Numba numbers its files by an index: files of two jobs must not be mixed."""
    script = "cd $NUMBA_CACHE_DIR; cat index data 2>/dev/null; [ $TEXT = none ] || for f in index data; do echo $TEXT >$f; done"
    for text, found in (("one", []), ("two", ["one"] * 4), ("none", ["two"] * 4), ("none", ["two"] * 4)):
        done = job(tmp_path, "sh", "-c", script, nodes=2, env=environment(TEXT=text))
        assert done.p.returncode == 0 and done.out.split() == found, done.err
    assert len(os.listdir(kind(tmp_path) / "numba")) == 1


def test_what_was_not_used_for_longest_is_removed(tmp_path):
    script = """cd $TRITON_CACHE_DIR; for i in 1 2 3; do mkdir KEY$i; head -c 400000 /dev/urandom >KEY$i/code; echo >KEY$i/__grp__x.json; done"""
    assert job(tmp_path, "sh", "-c", script).p.returncode == 0
    for i, age in ((1, 300), (2, 9000), (3, 600)):
        for f in ("code", "__grp__x.json"):
            os.utime(kind(tmp_path) / f"triton/KEY{i}/{f}", (time.time() - age,) * 2)
    done = job(tmp_path, "--compile-cache-max=1M", "sh", "-c", "ls $TRITON_CACHE_DIR")
    assert done.p.returncode == 0 and done.out.split() == ["KEY1", "KEY3"], done.err
    assert kept(tmp_path) == {f"triton/KEY{i}/{f}" for i in (1, 3) for f in ("code", "__grp__x.json")}
    assert not (kind(tmp_path) / "triton/KEY2").exists()


def test_what_others_can_have_written_is_not_used(tmp_path):
    job(tmp_path, "sh", "-c", "echo x >$TORCHINDUCTOR_CACHE_DIR/mine")
    top = kind(tmp_path) / "inductor"
    (top / "link").symlink_to("/etc/passwd")
    (top / "open").write_text("x")
    (top / "open").chmod(0o666)
    planted = 2
    if os.geteuid() == 0:
        (top / "foreign").write_text("x")
        os.chown(top / "foreign", 2002, 2002)
        planted += 1
    done = job(tmp_path, "sh", "-c", "ls $TORCHINDUCTOR_CACHE_DIR", nodes=2)
    assert done.p.returncode == 0 and done.out.split() == ["mine", "mine"], done.err
    assert len(told(done.err).splitlines()) == 1 and some_line(done.err, f"left out {planted} entries", "inductor/"), done.err


def bad_file(place):
    (place / "shared").write_text("")
    return "Not a directory"


def bad_mode(place):
    (place / "shared").mkdir()
    (place / "shared").chmod(0o777)
    return "other users can write"


def bad_owner(place):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    (place / "shared").mkdir()
    os.chown(place / "shared", 2002, 2002)
    return "belongs to another user"


def bad_parent(place):
    (place / "file").write_text("")
    (place / "shared").symlink_to(place / "file" / "below")
    return "Not a directory"


@pytest.mark.parametrize("make", [bad_file, bad_mode, bad_owner, bad_parent])
def test_without_a_usable_directory_the_job_goes_on_with_empty_caches(tmp_path, make):
    says = make(tmp_path)
    done = job(tmp_path, "sh", "-c", "cd $TORCHINDUCTOR_CACHE_DIR && ls && echo x >new", nodes=2)
    assert done.p.returncode == 0 and done.out == "", done.err
    assert len(told(done.err).splitlines()) == 1 and some_line(done.err, "--compile-cache", says, "empty caches"), done.err


def test_a_node_without_space_goes_on_without(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = in_small_mount(small)
    assert job(tmp_path, "sh", "-c", "head -c 3000000 /dev/urandom >$TORCHINDUCTOR_CACHE_DIR/big").p.returncode == 0
    with Job(f"--compile-cache={tmp_path / 'shared'}", f"--stage-dir={small}", "--simulate-nodes=2", "--nproc-per-node=1",
             "sh", "-c", "echo ${TORCHINDUCTOR_CACHE_DIR-unset}", before=mount, env=environment()) as j:
        assert j.wait() == 0, j.err
        assert j.out.split() == ["unset", "unset"]
        assert all(some_line(j.err, "--compile-cache", f"{node} goes on without", "not enough space") for node in ("sim1", "sim2")), j.err
        j.assert_nothing_left()


def test_local_caches_are_removed_after_kill(tmp_path):
    with Job(f"--compile-cache={tmp_path / 'shared'}", "--nproc-per-node=1", "sh", "-c",
             "echo x >$TORCHINDUCTOR_CACHE_DIR/x; echo at $TORCHINDUCTOR_CACHE_DIR; exec sleep 600", env=environment()) as j:
        where = j.line("/inductor").split()[1]
        assert os.path.exists(where)
        for pid in j.processes("ddrun"):  # all at once: a process of the worker's own would stay
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        j.wait()
        until(lambda: not os.path.exists(where))
        until(lambda: not j.processes("ddrun-stage") and not j.processes("ddrun-keeper"))
        j.assert_nothing_left()


def test_the_default_directory_is_in_the_cache_directory_of_the_user(tmp_path):
    cache = tmp_path / "cache"
    done = run("--compile-cache", "--nproc-per-node=1", "sh", "-c", "echo x >$TORCHINDUCTOR_CACHE_DIR/x", env=environment(XDG_CACHE_HOME=str(cache)))
    assert done.p.returncode == 0, done.err
    assert [p.name for p in (cache / "ddrun/compile").rglob("inductor/*")] == ["x"]
    assert os.stat(cache / "ddrun/compile").st_mode & 0o777 == 0o700


def test_dry_run_names_both_directories(tmp_path):
    done = run("--dry-run", f"--compile-cache={tmp_path}/shared", f"--stage-dir={tmp_path}", "sh", env=environment())
    assert some_line(done.out, "--compile-cache", f"'{tmp_path}/shared'", f"'{tmp_path}'"), done.out
    done = run("--dry-run=json", f"--compile-cache={tmp_path}/shared", "sh", env=environment())
    assert f"{tmp_path}/shared" in json.loads(done.out)["compile_cache"]
    assert not (tmp_path / "shared").exists()


@pytest.mark.parametrize("options, says", [
    (["--compile-cache="], "expected a directory"),
    (["--compile-cache", "--compile-cache-max=many"], "--compile-cache-max"),
])
def test_bad_options_are_refused_before_anything_starts(tmp_path, options, says):
    done = run(*options, "touch", str(tmp_path / "started"), env=environment())
    assert done.p.returncode == 2
    assert len(without_tips(told(done.err))) == 1 and says in done.err, done.err
    assert not (tmp_path / "started").exists()
