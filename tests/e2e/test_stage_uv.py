"""--stage of a virtual environment of the real uv, which is copied with its interpreter, also where another node sees neither uv's directories nor
the environment. uv installs an interpreter that is packed here as its own are, and a package that is made here: nothing is downloaded."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import zipfile

import pytest

from support import DDRUN, KEY, PYTHON, Job, built_with, clean_env, free_port, lines_with, run
from test_stage import mounts

UV = shutil.which("uv", path=f"{os.path.dirname(PYTHON)}:{os.environ['PATH']}")
pytestmark = [pytest.mark.large,
              pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)"),
              pytest.mark.skipif(UV is None, reason="no uv (PyPI: uv)")]
needs_mounts = pytest.mark.skipif(not mounts(), reason="neither this user nor a user namespace may mount")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide directories from one node")

LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "site-packages", "dist-packages", "__pycache__", "ensurepip"}
LOOK = """
import os, sys, greeting
print("worker", os.environ["RANK"], sys.prefix, sys.base_prefix, os.stat(os.__file__).st_ino, os.stat(greeting.__file__).st_ino, greeting.TEXT)
"""
# What make_distribution() needs to know of the Python of the tests.
ASK = "import json, os, sys, sysconfig; print(json.dumps([sys.version_info[:3], os.path.realpath(sys._base_executable), sysconfig.get_path('stdlib'), " \
      "os.uname().machine]))"


def make_distribution(top):
    """Pack the interpreter of the tests as uv's interpreters are packed, and write the list from which uv installs it."""
    version, program, library, machine = json.loads(subprocess.run([PYTHON, "-c", ASK], capture_output=True, text=True, check=True).stdout)
    name = "python{}.{}".format(*version)
    packed = top / "python.tar.gz"

    def wanted(entry):
        left_out = entry.issym() or os.path.basename(entry.name) in LEFT_OUT or os.path.basename(entry.name).startswith("config-")
        return None if left_out else entry

    with tarfile.open(packed, "w:gz", compresslevel=1) as t:
        t.add(program, f"python/bin/{name}")
        t.add(library, f"python/lib/{name}", filter=wanted)
    number = ".".join(map(str, version))
    row = {"name": "cpython", "arch": {"family": machine, "variant": None}, "os": "linux", "libc": "gnu", "major": version[0], "minor": version[1],
           "patch": version[2], "prerelease": "", "url": f"file://{packed}", "sha256": hashlib.sha256(packed.read_bytes()).hexdigest(),
           "variant": None, "build": "20260101"}
    (top / "downloads.json").write_text(json.dumps({f"cpython-{number}-linux-{machine}-gnu": row}))
    return number


def make_wheel(top):
    path = top / "greeting-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("greeting.py", "TEXT = 'hello'\ndef main():\n    print('script', __file__)\n")
        z.writestr("greeting-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
        z.writestr("greeting-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("greeting-1.dist-info/entry_points.txt", "[console_scripts]\ngreet = greeting:main\n")
        z.writestr("greeting-1.dist-info/RECORD", "")
    return path


class Uv:
    """uv with an interpreter, and what a virtual environment of it consists of."""

    def __init__(self, top):
        self.top, self.venv = top, top / "project" / ".venv"
        self.pythons, self.cache = top / "pythons", top / "cache"
        self.env = clean_env(UV_PYTHON_INSTALL_DIR=str(self.pythons), UV_CACHE_DIR=str(self.cache), UV_PYTHON_BIN_DIR=str(top / "bin"), UV_NO_CONFIG="1",
                             UV_OFFLINE="1", UV_PYTHON_DOWNLOADS_JSON_URL=f"file://{top}/downloads.json")
        self.number = make_distribution(top)
        self.wheel = make_wheel(top)
        self("python", "install", self.number)

    def __call__(self, *args, **env):
        done = subprocess.run([UV, *args], env=dict(self.env, **env), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def make(self, link_mode="hardlink", *options):
        shutil.rmtree(self.venv, ignore_errors=True)
        self("venv", "--managed-python", "--python", ".".join(self.number.split(".")[:2]), *options, str(self.venv))
        self("pip", "install", "--python", str(self.venv), "--link-mode", link_mode, str(self.wheel))
        return self.venv


@pytest.fixture(name="uv", scope="module")
def make_uv(tmp_path_factory):
    return Uv(tmp_path_factory.mktemp("uv"))


def seen(out):
    """Rank: prefix, base prefix, inode of the standard library and of the package, its text."""
    return {line.split()[1]: line.split()[2:] for line in lines_with(out, "worker ")}


def inodes(uv):
    """Inodes of the standard library and of the package where uv has installed them."""
    code = "import os, greeting; print(os.stat(os.__file__).st_ino, os.stat(greeting.__file__).st_ino)"
    return subprocess.run([uv.venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def assert_from_copies(uv, job_out, mounted):
    """All workers have read the standard library and the package from a copy, at their original paths on the nodes that could mount it."""
    original = inodes(uv)
    for rank, (prefix, base, library, package, text) in seen(job_out).items():
        assert (prefix == str(uv.venv), base.startswith(f"{uv.pythons}/cpython-"), text) == (mounted[int(rank)],) * 2 + ("hello",), job_out
        assert library not in original and package not in original, "the copy has inodes of its own"
    assert len(seen(job_out)) == len(mounted), job_out


@needs_mounts
@pytest.mark.parametrize("link_mode, options", [("hardlink", []), ("symlink", []), ("copy", ["--relocatable"])])
def test_interpreter_and_packages_are_read_from_the_copy(uv, link_mode, options):
    venv = uv.make(link_mode, *options)
    job = run("--simulate-nodes=2", "--nproc-per-node=1", f"--stage={venv}", "--no-python", str(venv / "bin" / "python"), "-c", LOOK)
    assert job.p.returncode == 0 and job.err == "", job.err
    assert_from_copies(uv, job.out, [True, True])


def test_interpreter_and_packages_are_read_from_a_copy_that_is_not_mounted(uv):
    venv = uv.make()
    env = clean_env(VIRTUAL_ENV=str(venv), PATH=f"{venv}/bin:{os.environ['PATH']}")
    args = ["--simulate-nodes=2", "--nproc-per-node=1", "--stage-mount=no", f"--stage={venv}", "--no-python"]
    job = run(*args, "python", "-c", LOOK, env=env)
    assert job.p.returncode == 0, job.err
    assert_from_copies(uv, job.out, [False, False])
    job = run(*args, "greet", env=env)
    assert len(lines_with(job.out, "script ")) == 2 and str(venv) not in job.out, (job.out, job.err)


def hiding(uv, mount_points):
    """A command prefix for a node that has none of uv's directories, and no environment; mount_points: empty directories in their place."""
    places = [uv.pythons, uv.cache, uv.venv.parent]
    home = [line.split("= ")[1] for line in (uv.venv / "pyvenv.cfg").read_text().splitlines() if line.startswith("home = ")][0]
    made = [uv.venv, os.path.dirname(home)] if mount_points else [uv.venv]
    words = [f"mount -t tmpfs none {place}" for place in places] + [f"mkdir -p {place}" for place in made]
    return ["unshare", "--mount", "sh", "-c", " && ".join(words) + ' && exec "$@"', "sh"]


@needs_root
@needs_mounts
@pytest.mark.parametrize("mount_points", [True, False])
@pytest.mark.parametrize("program", ["activated", "named"])
def test_a_node_that_has_neither_uv_nor_the_environment_gets_all_from_the_first(uv, mount_points, program):
    venv = uv.make()
    env = clean_env(PATH=f"{venv}/bin:{os.environ['PATH']}", VIRTUAL_ENV=str(venv), DDRUN_KEY=KEY)
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--rdzv-timeout=60s", "--nproc-per-node=1", f"--stage={venv}",
            "--no-python", "python" if program == "activated" else str(venv / "bin" / "python"), "-c", LOOK]
    with Job("--node-rank=0", *args, env=env) as first, Job("--node-rank=1", *args, env=env, before=hiding(uv, mount_points)) as second:
        codes = [second.wait(), first.wait()]
        assert codes == [0, 0], (first.err, second.err)
        assert_from_copies(uv, first.out + second.out, [True, mount_points])
