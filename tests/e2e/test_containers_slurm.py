"""Containers in a step of a real Slurm: ddrun outside, and ddrun inside without Slurm's commands."""

import os

import pytest

from containers import OTHER_UID, PY, places, usable
from support import DDRUN, json_lines, program
from test_slurm import slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")
STEP = ("-N2", "--ntasks-per-node=1")


@pytest.fixture(scope="module")
def can_wrap():
    usable("bwrap", None)


def box(*mounts, uid=OTHER_UID):
    """Return the prefix of a container with this machine's libraries, Python and ddrun, but without scontrol and srun."""
    words = ["bwrap", "--die-with-parent", "--unshare-user", "--uid", uid, "--unshare-pid", "--ro-bind", "/usr/lib", "/usr/lib",
             "--symlink", "usr/lib", "/lib", "--ro-bind", os.path.realpath(PY), PY, "--ro-bind", "/etc", "/etc",
             "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    if os.path.isdir("/usr/lib64"):
        words += ["--ro-bind", "/usr/lib64", "/usr/lib64", "--symlink", "usr/lib64", "/lib64"]
    for place in places():
        words += ["--ro-bind", place, place]
    for place in mounts:
        words += ["--bind", place, place]
    return words


def met(job):
    return sorted((w["rank"], w["met"], w["uid"], w["scontrol"]) for w in json_lines(job.out))


def test_workers_in_containers_ddrun_outside(slurm, can_wrap):  # noqa: F811
    job = slurm.run("--nproc-per-node=2", "--no-python", *box(), PY, program("inside.py"), "0", srun=STEP)
    assert job.rc == 0, job.err
    assert met(job) == [(r, True, int(OTHER_UID), False) for r in range(4)], job.err


@pytest.mark.parametrize("key", ["munge", "home"])
def test_ddrun_in_containers_finds_the_others_without_scontrol(slurm, can_wrap, key):  # noqa: F811
    """The uid inside is not the one that munged sees. The job has no other key than this one."""
    mount = "/run/munge" if key == "munge" else slurm.place
    env = {"HOME": "/nowhere" if key == "munge" else slurm.place}
    job = slurm.run("--nproc-per-node=2", PY, program("inside.py"), "0", srun=STEP, before=box(mount), env=env)
    assert job.rc == 0, job.err
    assert met(job) == [(r, True, int(OTHER_UID), False) for r in range(4)], job.err


def test_a_container_that_nobody_can_find_a_key_in_says_what_to_mount(slurm, can_wrap):  # noqa: F811
    """No --kill-on-bad-exit: bwrap leaves a container behind that is killed before --die-with-parent takes effect in it."""
    job = slurm.run("--rdzv-timeout=3s", PY, program("inside.py"), "0", srun=STEP, before=box(), env={"HOME": "/nowhere"})
    assert job.rc != 0
    assert "/run/munge" in job.err and "--key-file" in job.err, job.err
