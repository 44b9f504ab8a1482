"""ddrun in jobs of a real Grid Engine: three nodes in namespaces, with its qmaster, execds and qrsh (tests/cluster)."""

import os
import re
import secrets
import shlex
import shutil

import pytest

from support import DDRUN
from test_slurm import LIGHT, LIMIT, Slurm, assert_trained, until


pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

NODES = ["node1", "node2", "node3"]


class Job:
    """A job of qsub -sync y, which prints nothing before its end: the job's output goes to files in a shared directory."""

    def __init__(self, sge, argv):
        self.name = "j" + secrets.token_hex(3)
        self.sge, self.run = sge, sge.popen(["qsub", "-sync", "y", "-N", self.name, *argv])

    def text(self, name):
        path = self.sge.file(name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as f:
            return f.read()

    def said(self):
        return self.text("out") + self.text("err") + self.run.out + self.run.err

    def wait(self):
        done = self.run.wait(LIMIT)
        return type(done)(done.rc, self.text("out"), self.text("err"))


class GridEngine(Slurm):
    def submit(self, *argv, slots=6, options=()):
        lines = [f"export {name}='{value}'" for name, value in self.env.items()]
        self.file("script", "\n".join(["#!/bin/bash", *lines, 'cp "$PE_HOSTFILE" hosts', "exec " + shlex.join(argv), ""]))
        return Job(self, ["-cwd", "-pe", "mpi", str(slots), "-o", self.file("out"), "-e", self.file("err"), *options, "script"])


@pytest.fixture
def sge(sge_cluster):
    """Yield the cluster's Grid Engine; assert that the test leaves nothing."""
    before = sge_cluster.snapshot()
    yield GridEngine(sge_cluster)
    sge_cluster.assert_nothing_left(before)


def trained(sge, job):
    """Assert that the job has trained on all nodes, in the order of its hosts."""
    names = [line.split()[0] for line in job.text("hosts").splitlines()]
    assert sorted(names) == NODES
    assert_trained(job.wait(), names, sge.cluster.address(names[0]))


def test_a_script_starts_itself_on_all_nodes(sge):
    job = sge.submit(DDRUN, "--nproc-per-node=2", LIGHT, "--begun", sge.file("begun"))
    until(lambda: sge.exists("begun.*", 6), LIMIT, job.said)
    trained(sge, job)


def test_two_jobs_at_once_on_the_same_nodes_do_not_meet(sge_cluster):
    both = [GridEngine(sge_cluster) for _ in range(2)]
    jobs = [sge.submit(DDRUN, "--nproc-per-node=2", LIGHT, "--until", sge.file("go"), "--begun", sge.file("begun")) for sge in both]
    for sge, job in zip(both, jobs):
        until(lambda sge=sge: sge.exists("begun.*", 6), LIMIT, job.said)
    for sge, job in zip(both, jobs):
        sge.file("go", "")
        trained(sge, job)


def test_output_and_exit_code_are_the_jobs(sge):
    """Lines are whole and stdout and stderr separate, although the path of ddrun has a blank: qrsh passes its words to a shell."""
    place = sge.file("a place")
    shutil.copytree(os.path.dirname(DDRUN), place, ignore=lambda folder, names: [n for n in names if not n.startswith("ddrun") or
                                                                                 os.path.isdir(os.path.join(folder, n))])
    written = sge.file("written")  # by the other ranks, which end with rank 2
    worker = ("i=0; while [ $i -lt 200 ]; do i=$((i + 1)); echo out $RANK $i; echo err $RANK $i >&2; done; "
              f"touch {written}.$RANK; [ $RANK = 2 ] || exec sleep 600; "
              f"until [ -e {written}.0 ] && [ -e {written}.1 ]; do sleep 0.05; done; exit 7")
    job = sge.submit(os.path.join(place, "ddrun"), "--nproc-per-node=1", "sh", "-c", worker)
    done = job.wait()
    assert done.rc == 7, job.said()
    for name, text in (("out", done.out), ("err", done.err)):
        lines = [line for line in text.splitlines() if line.startswith(name)]
        assert sorted(lines) == sorted(f"{name} {rank} {i}" for rank in range(3) for i in range(1, 201))
    assert re.search(r"rank 2 on node\d failed \(exit code 7\)", done.err), done.err


def test_qdel_leaves_nothing_on_any_node(sge):
    job = sge.submit(DDRUN, "--nproc-per-node=1", "sh", "-c", f"touch {sge.file('here')}.$RANK; sleep 600")
    until(lambda: sge.exists("here.*", 3), LIMIT, job.said)
    sge.popen(["qdel", job.name]).wait(LIMIT)
    job.wait()
    until(lambda: not sge.cluster.scheduler.jobs(), LIMIT, job.said)


def test_qdel_with_notify_gives_the_workers_of_all_nodes_their_time(sge):
    """SIGUSR2 precedes SIGKILL, and goes to the script and to ddrun in it."""
    worker = f"trap 'touch {sge.file('saved')}.$RANK; exit 0' USR2; touch {sge.file('here')}.$RANK; while :; do sleep 0.05; done"
    job = sge.submit(DDRUN, "--nproc-per-node=1", "sh", "-c", worker, options=["-notify"])
    until(lambda: sge.exists("here.*", 3), LIMIT, job.said)
    sge.popen(["qdel", job.name]).wait(LIMIT)
    until(lambda: sge.exists("saved.*", 3), LIMIT, job.said)
    job.wait()


def test_each_task_of_an_array_is_one_of_its_own(sge):
    show = f"echo $SGE_TASK_ID $RANK/$WORLD_SIZE; touch {sge.file('here')}.$SGE_TASK_ID.$RANK; until [ -e {sge.file('go')} ]; do sleep 0.05; done"
    job = sge.submit(DDRUN, "--nproc-per-node=1", "sh", "-c", show, options=["-t", "1-2", "-o", sge.file("out.$TASK_ID")])
    until(lambda: sge.exists("here.*", 6), LIMIT, job.said)
    sge.file("go", "")
    assert job.run.wait(LIMIT).rc == 0, job.said()
    for index in (1, 2):
        assert sorted(job.text(f"out.{index}").splitlines()) == [f"{index} {rank}/3" for rank in range(3)], job.said()
