"""Container runtimes. A container's root directory is nearly empty, and this machine's /usr is mounted in it: no image is
fetched, and programs installed on this machine are available inside."""

import os
import shutil
import subprocess

import pytest

from support import BUILD, HERE

PY = "/usr/bin/python3"  # the only Python inside the containers
OTHER_UID = "5"  # the user's uid inside, where the runtime accepts one


def places():
    """Return the directories to mount besides the system's."""
    return [HERE, BUILD]


def tree(path):
    """Create a container's root directory with all mount points."""
    for name in ("usr", "etc", "proc", "sys", "dev", "run", "tmp", "root", "home", "var/tmp"):
        os.makedirs(os.path.join(path, name))
    for place in places():
        os.makedirs(path + place, exist_ok=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):  # runtimes mount their own files over these
        with open(os.path.join(path, "etc", name), "w", encoding="utf-8"):
            pass
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink(f"usr/{name}", os.path.join(path, name))
    return path


def bwrap(_root, *more):
    """Namespaces as Apptainer and Charliecloud create them without privileges, and a PID namespace."""
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
    """Use runc, because crun fails with version 1 control groups. Set limits, because root may lack the right to raise them as
    podman would."""
    binds = [word for place in ["/usr", *places()] for word in ("-v", f"{place}:{place}:ro")]
    return ["podman", "--runtime", "/usr/sbin/runc", "run", "--rm", "--env-host", "--network=host", "--ulimit=nofile=1000:1000",
            "--ulimit=nproc=1000:1000", "-v", "/dev/shm:/dev/shm", *binds, "--rootfs", root]


def with_descriptor(words):
    """Return the same command, with the worker's first descriptor after stderr passed into the container."""
    return [*words[:4], "--preserve-fds=1", *words[4:]] if words[0] == "podman" else words


RUNTIMES = {"bwrap": bwrap, "apptainer": apptainer, "ch-run": charliecloud, "podman": podman}


def usable(name, root):
    """Return the runtime's command prefix; skip the test if the runtime is missing or does not work."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    os.environ.setdefault("USER", "root")  # required by ch-run
    words = RUNTIMES[name](root)
    tried = subprocess.run([*words, PY, "-c", ""], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=120, check=False)
    if tried.returncode != 0:
        said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{name} makes no container here: {said}")
    return words
