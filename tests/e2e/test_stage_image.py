"""--stage=IMAGE: a squashfs image is copied as one file, and each node mounts it for its workers."""

import os
import shutil
import subprocess
import sys

import pytest

from support import ATTACKER, DDRUN, Job, built_with, clean_env, command_as, lines_with, run, some_line, told, until, without_tips
from test_stage import LOOK, look, make_source, mounts  # noqa: F401
from test_stage_warm import PATIENT, imports, make_place  # noqa: F401
from test_stage_warm import env as warm_env


def may_use_fuse():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    return True


pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed (squashfs-tools)"),
              pytest.mark.skipif(not shutil.which("squashfuse"), reason="squashfuse is not installed"),
              pytest.mark.skipif(not may_use_fuse(), reason="this user may not use /dev/fuse"),
              pytest.mark.skipif(not mounts(), reason="neither this user nor a user namespace may mount")]


@pytest.fixture(name="image")
def make_image(source, tmp_path):
    """An image of the source, and the directory at which workers find it."""
    path = tmp_path / "packed.squashfs"
    (tmp_path / "packed").mkdir()
    for d, dirs, files in os.walk(source):  # squashfs stores whole seconds
        for f in files + dirs:
            os.utime(os.path.join(d, f), (1700000000, 1700000000), follow_symlinks=False)
    subprocess.run(["mksquashfs", source, str(path), "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    return str(path)


def servers(image):
    """The processes that serve a copy of an image."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                argv = f.read().split(b"\0")
        except OSError:
            continue
        if argv[0] == b"squashfuse" and image.encode() in argv[2]:
            found.append(int(pid))
    return found


def test_workers_of_all_nodes_find_what_an_image_contains(source, image, tmp_path):
    place = f"{tmp_path}/packed"
    with Job("--simulate-nodes=3", "--nproc-per-node=2", f"--stage={image}", "--log-level=info", sys.executable, "-c", LOOK, place) as job:
        assert job.wait() == 0, job.err
        seen = [line.split()[1] for line in job.out.splitlines()]
        assert seen == [look(source)] * 6
        assert len(lines_with(job.err, "staged ")) == 3 and os.listdir(place) == []
        job.assert_nothing_left()


def test_an_image_is_read_only_and_has_the_name_that_the_user_gives(image, tmp_path):
    place = tmp_path / "other"
    place.mkdir()
    job = run(f"--stage={image}:{place}", "sh", "-c", f"test -s {place}/large && {{ touch {place}/new || echo refused; }}")
    assert job.out == "refused\n", (job.out, job.err)


def test_a_symbolic_link_names_the_newest_image(image, tmp_path):
    os.symlink(image, tmp_path / "newest.sqsh")
    job = run(f"--stage={tmp_path}/newest.sqsh:{tmp_path}/packed", "wc", "-c", f"{tmp_path}/packed/large")
    assert job.out.split()[0] == str(3 << 20), job.err


def test_a_restart_uses_the_mounted_image(image, tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=2", f"--stage={image}", f"--stage-dir={tmp_path}", "--log-level=info",
             "sh", "-c", f"wc -c <{tmp_path}/packed/large; test $TORCHELASTIC_RESTART_COUNT = 2 || exit 3") as job:
        assert job.wait() == 0, job.err
        assert job.out.split() == [str(3 << 20)] * len(job.out.split()) and len(job.out.split()) >= 4, job.out
        assert len(lines_with(job.err, "staged ")) == 2, job.err
        assert servers(str(tmp_path)) == []
        job.assert_nothing_left()


def test_a_restart_while_a_node_still_mounts_its_image_copies_nothing_again(image, tmp_path):
    """The second server to be started does not serve before the workers of round 1 run."""
    programs = tmp_path / "programs"
    programs.mkdir()
    wrapper = programs / "squashfuse"
    wrapper.write_text(f"""#!/bin/sh
mkdir {tmp_path}/first 2>/dev/null || {{
    touch {tmp_path}/second
    until [ -e {tmp_path}/go ]; do sleep 0.05; done
}}
exec {shutil.which("squashfuse")} "$@"
""")
    wrapper.chmod(0o755)
    script = (f"wc -c <{tmp_path}/packed/large; [ $DDRUN_ROUND = 1 ] && touch {tmp_path}/go && exit; "
              f"until [ -e {tmp_path}/second ]; do sleep 0.05; done; exit 3")
    env = clean_env(PATH=f"{programs}:{os.environ['PATH']}")
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", f"--stage={image}", "--log-level=info", "sh", "-c", script, env=env) as job:
        assert job.wait() == 0, job.err
        assert job.out.split() == [str(3 << 20)] * 3, job.out
        assert len(lines_with(job.err, "staged ")) == 2, job.err
        job.assert_nothing_left()


def test_a_node_that_joins_later_gets_the_image_of_another_and_not_the_source(image, tmp_path):
    go = tmp_path / "go"
    script = (f"echo round $DDRUN_ROUND $(wc -c <{tmp_path}/packed/large); [ $DDRUN_ROUND = 1 ] && exit; "
              f"until [ -e {go} ]; do sleep 0.05; done; [ $RANK = 1 ] && kill -9 $PPID; sleep 600")
    with Job("--simulate-nodes=3", "--nnodes=2:2", "--nproc-per-node=1", f"--stage={image}", "sh", "-c", script) as job:
        job.line("round 0 3145728\nround 0 3145728")
        os.unlink(image)
        go.touch()
        job.line("round 1 3145728\nround 1 3145728")
        assert job.wait() == 0, job.err


def test_a_killed_agent_leaves_no_server_of_an_image(image, tmp_path):
    with Job(f"--stage={image}", f"--stage-dir={tmp_path}", "sh", "-c", f"wc -c <{tmp_path}/packed/large; exec sleep 600") as job:
        job.line(str(3 << 20))
        assert len(servers(str(tmp_path))) == 1
        os.kill(job.agents()[0], 9)
        job.wait()
        until(lambda: not servers(str(tmp_path)), say="the end of squashfuse")
        job.assert_nothing_left()


def test_a_second_job_uses_the_kept_copy_of_an_image(image, tmp_path):
    (tmp_path / "local").mkdir(mode=0o700)
    for text in ("MiB in", "used the kept copy"):
        job = run(f"--stage={image}", "--stage-keep", f"--stage-dir={tmp_path}/local", "--log-level=info", "test", "-s", f"{tmp_path}/packed/large")
        assert job.p.returncode == 0 and some_line(job.err, "staged ", text), job.err


def test_another_user_mounts_an_image_without_root(image, tmp_path):
    """In a user namespace, with a /dev/fuse that all users may open, as on most machines."""
    if os.geteuid() != 0:
        pytest.skip("this user may not become another one")
    fuse = tmp_path / "fuse"
    for path in [tmp_path, *list(tmp_path.parents)[:-2]]:
        os.chmod(path, 0o755)
    mode = ["unshare", "--mount", "sh", "-c", f'mknod {fuse} c 10 229 && chmod 666 {fuse} && mount --bind {fuse} /dev/fuse && exec "$@"', "sh",
            *command_as(ATTACKER)]
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={image}", "sh", "-c", f"id -u; wc -c <{tmp_path}/packed/large", before=mode,
             env=clean_env(HOME="/nonexistent")) as job:
        assert job.wait() == 0, job.err
        assert sorted(job.out.split()) == sorted([str(ATTACKER), str(3 << 20)] * 2)


def test_workers_are_forked_from_an_interpreter_of_the_image(place):
    subprocess.run(["mksquashfs", str(place / "env"), str(place / "env.squashfs"), "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(place / "env" / "lib")
    script = place / "train.py"
    script.write_text("import heavy, os; print('worker', os.getpid(), os.stat(heavy.__file__).st_ino)")
    job = run(PATIENT, "--warm=heavy", f"--stage={place}/env.squashfs", "--simulate-nodes=2", "--nproc-per-node=2", str(script),
              env=warm_env(place))
    assert job.p.returncode == 0, job.err
    workers = [line.split()[1] for line in lines_with(job.out, "worker")]
    importers = [str(pid) for pid, _ in imports(place)]
    assert len(workers) == 4 and len(importers) == 2 and not set(workers) & set(importers), (job.out, job.err)


def test_a_server_that_is_killed_is_the_cause(image, tmp_path):
    code = f"import time\nwhile True:\n open('{tmp_path}/packed/large').close()\n print('read', flush=True)\n time.sleep(0.1)"
    with Job(f"--stage={image}", f"--stage-dir={tmp_path}", sys.executable, "-c", code) as job:
        job.line("read")
        os.kill(servers(str(tmp_path))[0], 9)
        assert job.wait() == 1, job.err
        assert some_line(job.err, "cause:", "a FUSE file system has lost the process"), job.err
        job.assert_nothing_left()


def cut(image):
    with open(image, "r+b") as f:
        f.truncate(1000)
    return image, "the image may be damaged"


def other(image):
    with open(image, "wb") as f:
        f.write(b"text")
    return image, "is not a squashfs image"


def nowhere(image):
    return f"{image}:{image}.none", "cannot mount the image: mount at"


@pytest.mark.parametrize("prepare", [cut, other, nowhere])
def test_an_image_that_cannot_be_mounted_is_named_and_no_worker_starts(image, tmp_path, prepare):
    path, says = prepare(image)
    with Job("--simulate-nodes=2", f"--stage={path}", "touch", str(tmp_path / "started")) as job:
        assert job.wait() == 2, job.err
        assert some_line(job.err, "--stage", says), job.err
        assert len(without_tips(told(job.err))) == 1, job.err
        assert not (tmp_path / "started").exists()
        job.assert_nothing_left()


def test_an_image_needs_squashfuse_and_a_mount(image, tmp_path):
    (tmp_path / "bin").mkdir()
    os.symlink("/bin/true", tmp_path / "bin" / "true")
    for args, env, says in [([], clean_env(PATH=f"{tmp_path}/bin"), "squashfuse, which is not in PATH"),
                            (["--stage-mount=no"], clean_env(), "--stage-mount=no cannot be used")]:
        job = run(f"--stage={image}", *args, "true", env=env)
        assert job.p.returncode == 2 and some_line(job.err, says), job.err
