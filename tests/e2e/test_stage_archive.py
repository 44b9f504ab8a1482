"""--stage=ARCHIVE: it is read once and unpacked on each node, and workers find its contents in a directory."""

import ctypes
import io
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from support import DDRUN, Job, built_with, clean_env, lines_with, run, some_line, told, without_tips
from test_stage import LOOK, look, make_source, mounts  # noqa: F401


def has_libarchive():
    try:
        ctypes.CDLL("libarchive.so.13")
    except OSError:
        return False
    return True


pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(not has_libarchive(), reason="this machine has no libarchive (libarchive13)")]
needs_mounts = pytest.mark.skipif(not mounts(), reason="neither this user nor a user namespace may mount")


def whole_seconds(top):
    """Give all files times that every format can store."""
    for d, dirs, files in os.walk(top):
        for f in files + dirs:
            os.utime(os.path.join(d, f), (1700000000, 1700000000), follow_symlinks=False)


def pack(top, path, inside="."):
    mode = {".tar": "w", ".gz": "w:gz", ".xz": "w:xz"}[os.path.splitext(path)[1]]
    with tarfile.open(path, mode) as t:
        t.add(top, inside)
    return path


def tar_of(path, *names):
    """An archive with entries of these names: files, NAME->TARGET symbolic links, NAME=>TARGET hard links."""
    with tarfile.open(path, "w") as t:
        for name in names:
            entry = tarfile.TarInfo(name)
            for sign, kind in (("->", tarfile.SYMTYPE), ("=>", tarfile.LNKTYPE)):
                if sign in name:
                    entry.name, entry.linkname = name.split(sign)
                    entry.type = kind
            entry.size = 4 if entry.isreg() else 0
            t.addfile(entry, io.BytesIO(b"text"))
    return path


@needs_mounts
@pytest.mark.parametrize("end", [".tar", ".tar.gz", ".tar.xz"])
def test_workers_of_all_nodes_find_what_an_archive_contains(source, tmp_path, end):
    whole_seconds(source)
    archive = pack(source, str(tmp_path / f"packed{end}"))
    place = tmp_path / "packed"
    place.mkdir()
    job = run("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={archive}", "--log-level=info", sys.executable, "-c", LOOK, str(place))
    assert job.p.returncode == 0, job.err
    assert {line.split()[1] for line in job.out.splitlines()} == {look(source)}
    assert len(lines_with(job.err, "staged ")) == 2 and os.listdir(place) == []


def test_a_directory_with_the_name_of_the_archive_is_left_out(source, tmp_path):
    archive = pack(source, str(tmp_path / "packed.tar"), "packed")
    job = run(f"--stage={archive}", "--no-python", "sh", "-c", "cat $VIRTUAL_ENV/lib/link/module0.py",
              env=clean_env(VIRTUAL_ENV=f"{tmp_path}/packed"))
    assert job.p.returncode == 0 and job.out == "x = 0\n", job.err


@needs_mounts
def test_long_files_and_many_links_of_an_archive_arrive_whole(tmp_path):
    top = tmp_path / "packed"
    top.mkdir()
    chunk, whole = 768 << 10, 256 << 10
    for size in (0, 1, whole - 1, whole, whole + 1, chunk - 4200, chunk - 40, chunk, chunk + 1, 2 * chunk - 80, 3 * chunk, 5 * chunk + 7):
        (top / f"size{size}").write_bytes(os.urandom(size))
    for i in range(9000):
        os.symlink(f"{i}" + 100 * "x", top / f"link{i}")
    whole_seconds(top)
    pack(top, str(tmp_path / "packed.tar"))
    job = run(f"--stage={tmp_path}/packed.tar", "--log-level=info", sys.executable, "-c", LOOK, str(top))
    assert job.p.returncode == 0, job.err
    digest, inode = job.out.split()[1::2]
    assert digest == look(top) and inode != str(top.stat().st_ino)


@pytest.mark.parametrize("mount", [pytest.param("auto", marks=needs_mounts), "no"])
def test_workers_run_programs_that_only_the_archive_contains(tmp_path, mount):
    """No node has them before the copy: neither the interpreter of the environment, nor a program of PATH, nor one that is named."""
    top, place = tmp_path / "made", tmp_path / "env"
    (top / "bin").mkdir(parents=True)
    place.mkdir()
    for name in ("python3", "tool", "sleep"):
        (top / "bin" / name).write_text(f"#!/bin/sh\necho {name} of the archive $*\n")
        (top / "bin" / name).chmod(0o755)
    (tmp_path / "x.py").touch()
    pack(top, str(tmp_path / "env.tar"))
    env = clean_env(PATH=f"{place}/bin:{os.environ['PATH']}", VIRTUAL_ENV=str(place))
    del env["PYTHON_EXEC"]
    for program, out in (([f"{tmp_path}/x.py"], f"python3 of the archive -u {tmp_path}/x.py\n"), (["--no-python", "tool", "1"], "tool of the archive 1\n"),
                         (["--no-python", "sleep", "600"], "sleep of the archive 600\n"), (["--no-python", f"{place}/bin/tool"], "tool of the archive\n")):
        job = run("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={tmp_path}/env.tar", f"--stage-mount={mount}", *program, env=env)
        assert job.p.returncode == 0 and job.out == 2 * out, (program, job.out, job.err)


def test_a_copy_that_nothing_leads_to_is_named_once(source, tmp_path):
    """The directory with the name of the archive does not exist, and the workers would not know where the copy is."""
    archive = pack(source, str(tmp_path / "packed.tar"))

    def of(*argv, **env):
        job = run("--simulate-nodes=2", "--nproc-per-node=2", f"--stage={archive}", "--no-python", *argv, env=clean_env(**env))
        assert job.p.returncode == 0, job.err
        return lines_with(job.err, "packed' does not exist")

    named = of("true")
    assert len(named) == 1 and "its copy in '/" in named[0], named
    assert len(of("true", PYTHONPATH=f"/nowhere:{tmp_path}/packed2")) == 1
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        assert of("true", **{name: f"/nowhere:{tmp_path}/packed/lib:/else"}) == []
    assert of("true", CONDA_PREFIX=f"{tmp_path}/packed") == []
    assert of("/bin/cat", f"{tmp_path}/packed/lib/link/module0.py") == []
    (tmp_path / "packed").mkdir()
    assert of("true") == []


def test_a_zip_file_is_shown_under_the_name_that_the_user_gives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("lib/deep/module.py", "text of the module\n")
    job = run(f"--stage={tmp_path}/a.zip:{tmp_path}/env", "--stage-mount=no", "--no-python", "sh", "-c",
              "echo at $VIRTUAL_ENV; cat $VIRTUAL_ENV/lib/deep/module.py", env=clean_env(VIRTUAL_ENV=f"{tmp_path}/env"))
    assert job.p.returncode == 0 and "text of the module" in job.out, job.err
    assert str(tmp_path) not in job.out, job.out


def test_a_hard_link_to_a_symbolic_link_becomes_a_symbolic_link(tmp_path):
    """As tar stores a tree whose files cp -al or rsync -H have linked."""
    archive = tar_of(f"{tmp_path}/a.tar", "text", "soft->text", "hard=>soft", "again=>hard", "other=>text")
    job = run(f"--stage={archive}", "--stage-mount=no", "--no-python", "sh", "-c",
              "cd $VIRTUAL_ENV; cat hard again other; readlink soft hard again", env=clean_env(VIRTUAL_ENV=f"{tmp_path}/a"))
    assert job.p.returncode == 0 and job.out == "texttexttexttext\ntext\ntext\n", job.err


def test_a_file_with_the_name_of_the_archive_keeps_it(tmp_path):
    archive = tar_of(f"{tmp_path}/data.tar", "data", "more")
    job = run(f"--stage={archive}", "--stage-mount=no", "--no-python", "sh", "-c", "cd $VIRTUAL_ENV; ls; cat data",
              env=clean_env(VIRTUAL_ENV=f"{tmp_path}/data"))
    assert job.p.returncode == 0 and job.out == "data\nmore\ntext", job.err


@needs_mounts
def test_a_second_job_uses_the_kept_copy_of_an_archive(source, tmp_path):
    archive = pack(source, str(tmp_path / "packed.tar"))
    (tmp_path / "packed").mkdir()
    (tmp_path / "local").mkdir(mode=0o700)
    for text in ("MiB in", "used the kept copy"):
        job = run(f"--stage={archive}", "--stage-keep", f"--stage-dir={tmp_path}/local", "--log-level=info", "test", "-s",
                  f"{tmp_path}/packed/large")
        assert job.p.returncode == 0 and some_line(job.err, "staged ", text), job.err


def broken(tmp_path):
    path = pack(str(tmp_path), str(tmp_path / "a.tar.gz"))
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) // 2)
    return path, "cannot read the archive"


def flipped(tmp_path, size):
    """A ZIP file of which one byte of a member has changed."""
    path = f"{tmp_path}/a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("lib/module.py", b"x" * size)
    with open(path, "r+b") as f:
        at = f.read().index(b"xxxx")
        f.seek(at + size // 2)
        f.write(b"y")
    return path, "cannot read the archive"


def image(tmp_path):
    (tmp_path / "a.sif").write_bytes(b"")
    return str(tmp_path / "a.sif"), "is an image"


def unknown(tmp_path):
    (tmp_path / "a.rar").write_bytes(b"Rar!")
    return str(tmp_path / "a.rar"), "not a directory, an archive or an image"


@pytest.mark.parametrize("prepare", [
    broken, image, unknown,
    lambda p: flipped(p, 100),
    lambda p: flipped(p, 3 << 20),
    lambda p: (tar_of(f"{p}/a.tar", "../out"), "has no place"),
    lambda p: (tar_of(f"{p}/a.tar", "/etc/out"), "has no place"),
    lambda p: (tar_of(f"{p}/a.tar", "b", "b"), "twice"),
    lambda p: (tar_of(f"{p}/a.tar", "a/b", "c"), "outside"),
    lambda p: (tar_of(f"{p}/a.tar", "a/b", "a"), "has no place"),
    lambda p: (tar_of(f"{p}/a.tar", "b", "lib/c=>lib/none"), "'lib/c', a hard link to 'lib/none'"),
    lambda p: (tar_of(f"{p}/a.tar", "a/b", "a/" + f"{'x' * 200}/" * 20 + "y" * 90), "more than 4095 bytes"),
    lambda p: (f"{p}/none.tar", "No such file"),
], ids=["truncated", "image", "unknown", "flipped", "flipped-long", "parent", "absolute", "twice", "outside", "file-and-directory", "link", "long",
        "missing"])
def test_an_archive_that_cannot_be_unpacked_is_named_and_no_worker_starts(tmp_path, prepare):
    (tmp_path / "noise").write_bytes(os.urandom(1 << 20))
    path, says = prepare(tmp_path)
    with Job("--simulate-nodes=2", f"--stage={path}", "touch", str(tmp_path / "started")) as job:
        assert job.wait() == 2, job.err
        assert some_line(job.err, "--stage", path, says), job.err
        assert len(without_tips(told(job.err))) == 1, job.err
        assert not (tmp_path / "started").exists()
        job.assert_nothing_left()


@needs_mounts
def test_a_node_that_an_archive_fills_is_named(source, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    archive = pack(source, str(tmp_path / "packed.tar.gz"))
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=3600k,mode=1777 none {small} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    with Job(f"--stage={archive}", f"--stage-dir={small}", "touch", str(tmp_path / "started"), before=mount) as job:
        assert job.wait() == 2, job.err
        assert some_line(job.err, "not enough space on"), job.err
        assert not (tmp_path / "started").exists()
