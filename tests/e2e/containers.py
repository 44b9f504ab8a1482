"""Container runtimes as the tests use them: each makes a container of a tree that is all but empty, with this machine's /usr
mounted in it. So no image is fetched, and what is installed here is inside."""

import os
import shutil
import subprocess

import pytest

from support import BUILD, HERE

PY = "/usr/bin/python3"  # is inside, too; no other one
OTHER_UID = "5"  # what this user is called inside, where the runtime lets us choose


def places():
    """What has to be mounted besides the system."""
    return [HERE, BUILD]


def tree(path):
    """The container's root folder, with a place for each mount."""
    for name in ("usr", "etc", "proc", "sys", "dev", "run", "tmp", "root", "home", "var/tmp"):
        os.makedirs(os.path.join(path, name))
    for place in places():
        os.makedirs(path + place, exist_ok=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):  # runtimes put files of their own over these
        with open(os.path.join(path, "etc", name), "w", encoding="utf-8"):
            pass
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink(f"usr/{name}", os.path.join(path, name))
    return path


def bwrap(_root, *more):
    """Namespaces as Apptainer and Charliecloud make them without privileges, and a PID namespace."""
    binds = [word for place in places() for word in ("--ro-bind", place, place)]
    links = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    return ["bwrap", "--unshare-user", "--uid", OTHER_UID, "--unshare-pid", "--ro-bind", "/usr", "/usr", *links,
            "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *binds, *more]


def apptainer(root):
    binds = [word for place in ["/usr", *places()] for word in ("-B", place)]
    return ["apptainer", "-s", "exec", "--userns", *binds, root]


def charliecloud(root):
    binds = [word for place in ["/usr", *places()] for word in ("-b", f"{place}:{place}")]
    return ["ch-run", "--private-tmp", *binds, root, "--"]


def podman(root):
    """runc, because crun does not work beside control groups of version 1; limits, because root may not have the right to raise
    them as podman would."""
    binds = [word for place in ["/usr", *places()] for word in ("-v", f"{place}:{place}:ro")]
    return ["podman", "--runtime", "/usr/sbin/runc", "run", "--rm", "--env-host", "--network=host", "--ulimit=nofile=1000:1000",
            "--ulimit=nproc=1000:1000", "-v", "/dev/shm:/dev/shm", *binds, "--rootfs", root]


def with_descriptor(words):
    """The same, and the worker's first descriptor after stderr gets inside."""
    return [*words[:4], "--preserve-fds=1", *words[4:]] if words[0] == "podman" else words


RUNTIMES = {"bwrap": bwrap, "apptainer": apptainer, "ch-run": charliecloud, "podman": podman}


def usable(name, root):
    """The runtime's words before a command in its container; skips the test where there is none that works."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    os.environ.setdefault("USER", "root")  # ch-run wants it
    words = RUNTIMES[name](root)
    tried = subprocess.run([*words, PY, "-c", ""], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=120, check=False)
    if tried.returncode != 0:
        said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{name} makes no container here: {said}")
    return words
