"""ddctl submit on the login node of a real Slurm, OpenPBS and Grid Engine (tests/cluster; fixtures cluster, pbs_cluster, sge_cluster)."""

import json
import os
import signal

import pytest

from support import DDRUN, some_line
from test_gridengine import GridEngine
from test_openpbs import Pbs
from test_slurm import LIMIT, Slurm, until


pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
SHOW = """import json, os, sys, time
rank = int(os.environ["RANK"])
print(json.dumps([rank, os.environ["WORLD_SIZE"], sys.argv[1:]]), flush=True)
open(f"shown.{rank}", "w").close()
while not os.path.exists("shown.0"):  # a failure ends the other rank
    time.sleep(0.05)
sys.exit(rank * 7)
"""
WAIT = """import os, sys, time
print("begun", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("done", flush=True)
"""
GRID_ENGINE = ("#!/bin/bash\n#$ -S /bin/bash -N @NAME@ -cwd -j y -o /dev/null\n#$ -pe mpi @SLOTS@\n#$ -q @QUEUE@\n"
               "export @ENVIRONMENT@\nexec @COMMAND@ >@LOG@ 2>&1\n")
STRANGE = ["a b", "it's", '"q"', "x\ny", "", "$HOME", "`id`", "\\", "*"]


class Site:
    def __init__(self, jobs, scheduler, cancel):
        self.jobs, self.scheduler, self.cancel = jobs, scheduler, cancel
        jobs.file("show.py", SHOW)
        jobs.file("wait.py", WAIT)
        jobs.file("site.sh", GRID_ENGINE)

    def start(self, *args, **how):
        template = ["--template=site.sh"] if self.scheduler == "gridengine" else []
        return self.jobs.popen([DDCTL, "submit", f"--scheduler={self.scheduler}", *template, *args], **how)

    def log(self, name):
        path = self.jobs.file(name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as f:
            return f.read()


@pytest.fixture(params=["slurm", "pbs", "gridengine"])
def site(request):
    name, jobs, cancel = {"slurm": ("cluster", Slurm, "scancel"), "pbs": ("pbs_cluster", Pbs, "qdel"),
                          "gridengine": ("sge_cluster", GridEngine, "qdel")}[request.param]
    made = request.getfixturevalue(name)
    before = made.snapshot()
    yield Site(jobs(made), request.param, cancel)
    made.assert_nothing_left(before)


def test_job_runs_on_its_nodes_and_gives_its_output_and_exit_code(site):
    with site.start("--nodes=2", "--follow", "--", DDRUN, "--nproc-per-node=1", "show.py", *STRANGE) as job:
        done = job.wait(LIMIT)
    job_id, _, log = done.out.partition("\n")
    assert done.rc == 7, (done.out, done.err)
    assert sorted(json.loads(line) for line in log.splitlines() if line.startswith("[")) == [[r, "2", STRANGE] for r in range(2)]
    assert site.log(f"show-{job_id}.out") == log
    assert some_line(done.err, f"job {job_id} ended", "exit code 7")


def test_ctrl_c_ends_following_and_not_the_job(site):
    go = site.jobs.file("go")
    with site.start("--follow", "--", DDRUN, "--nproc-per-node=1", "wait.py", go) as job:
        until(lambda: "begun" in job.out, LIMIT, lambda: job.out + job.err)
        job.signal(signal.SIGINT)
        done = job.wait(LIMIT)
    job_id = done.out.splitlines()[0]
    assert done.rc == 130 and some_line(done.err, f"job {job_id} continues") and f"{site.cancel} {job_id}" in done.err, done
    site.jobs.file("go", "")
    until(lambda: "done" in site.log(f"wait-{job_id}.out"), LIMIT, lambda: site.log(f"wait-{job_id}.out"))


def test_what_the_scheduler_would_refuse_or_never_start_is_not_submitted(site):
    with site.start("--nodes=9", "--partition=gone", "--", DDRUN, "gone.py") as job:
        done = job.wait(LIMIT)
    assert (done.rc, done.out) == (2, ""), done
    assert some_line(done.err, "error", "gone.py", "does not exist") and some_line(done.err, "error", "'gone'", "does not exist")
    assert some_line(done.err, "tip", {"slurm": "main", "pbs": "workq", "gridengine": "all.q"}[site.scheduler])
    assert "submitted" not in done.err


def test_job_id_is_that_of_the_scheduler(site):
    with site.start("--", DDRUN, "--nproc-per-node=1", "show.py") as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done
    log = f"show-{done.out.strip()}.out"
    until(lambda: "[" in site.log(log), LIMIT, lambda: site.log(log))
    assert '[0, "1", []]' in site.log(log)


def test_environment_of_the_shell_is_hidden_from_other_users(site):
    go, secret = site.jobs.file("go"), "hidden-from-others"
    with site.start("--follow", "--", DDRUN, "--nproc-per-node=1", "wait.py", go, env={"API_TOKEN": secret}) as job:
        until(lambda: "begun" in job.out, LIMIT, lambda: job.out + job.err)
        job_id = job.out.splitlines()[0]
        show = {"slurm": ["scontrol", "show", "job", job_id], "pbs": ["qstat", "-f", job_id], "gridengine": ["qstat", "-j", job_id]}[site.scheduler]
        shown = site.jobs.cluster.run(show, user="bob")
        assert "wait" in shown.out and secret not in shown.out, shown.out
        site.jobs.file("go", "")
        assert job.wait(LIMIT).rc == 0, job.out + job.err
