"""ddrun in jobs of a real OpenPBS: three nodes in namespaces, with the server, scheduler, moms and starters of PBS
(tests/cluster)."""

import json
import os
import re
import shlex

import pytest

from support import DDRUN, built_with, json_lines, program, some_line, with_torch
from test_slurm import LIGHT, LIMIT, Slurm, assert_trained, until
from test_stage import mounts
from warm_venv import WarmVenv


pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
NODES = ["node1", "node2", "node3"]
SELECT = "3:ncpus=2:mpiprocs=1"
UNTIRED = "--heartbeat=10m"


class Job:
    """A job of qsub; the output of its script is in files in a shared directory."""

    def __init__(self, pbs, argv):
        self.pbs = pbs
        self.run = pbs.popen(argv)
        self.id = until(lambda: re.search(r"^\d+(\[\])?\.ctl$", self.run.out, re.M), LIMIT, lambda: self.run.out + self.run.err).group()

    def text(self, name):
        path = self.pbs.file(name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as f:
            return f.read()

    @property
    def out(self):
        return self.text("out")

    @property
    def err(self):
        return self.text("err")

    def said(self):
        return self.out + self.err + self.run.err

    def wait_for(self, text, count=1):
        def there():
            assert self.run.rc is None or self.out.count(text) >= count, self.said()
            return self.out.count(text) >= count
        until(there, LIMIT, self.said)

    def wait(self):
        """Wait for the end; return the exit code and the output."""
        done = self.run.wait(LIMIT)
        return type(done)(done.rc, self.out, self.err)

    def wait_for_files(self):
        """Wait until the job is over and PBS has copied the files of qsub -o and -e: qsub -W block returns earlier, and a file
        exists before it is complete."""
        until(lambda: self.attribute("job_state") == "F", LIMIT, self.said)

    def attribute(self, name):
        """Return an attribute of qstat -f, also after the job's end."""
        done = self.pbs.popen(["qstat", "-x", "-f", "-F", "json", self.id]).wait(LIMIT)
        return json.loads(done.out)["Jobs"][self.id].get(name)


class Pbs(Slurm):
    """Submits jobs to one cluster."""

    def submit(self, *argv, select=SELECT, options=(), env=(), script=None):
        """Submit a script with this command, or `script`; its stdout and stderr go to files that the test can read meanwhile."""
        lines = [f"export {name}='{value}'" for name, value in {**self.env, **dict(env)}.items()]
        command = script or "exec " + shlex.join(argv)
        self.file("script", "\n".join(["#!/bin/bash", *lines, 'cd "$PBS_O_WORKDIR"', "exec >out 2>err", command, ""]))
        return Job(self, ["qsub", "-l", f"select={select}", "-l", "place=scatter", "-W", "block=true", *options, "script"])


@pytest.fixture
def pbs(pbs_cluster):
    """Yield the cluster's PBS; assert that the test leaves nothing."""
    before = pbs_cluster.snapshot()
    yield Pbs(pbs_cluster)
    pbs_cluster.assert_nothing_left(before)


@pytest.mark.parametrize("launcher", ["auto", "pbs_tmrsh", "pbsdsh", "tm"])
def test_a_script_starts_itself_on_all_nodes(pbs, launcher):
    done = pbs.submit(DDRUN, f"--launcher={launcher}", "--nproc-per-node=2", LIGHT).wait()
    assert_trained(done, NODES, pbs.cluster.address("node1"))


def test_three_jobs_at_once_on_the_same_nodes_do_not_meet(pbs_cluster):
    """Each job uses another starter."""
    jobs = [Pbs(pbs_cluster) for _ in range(3)]
    started = [pbs.submit(DDRUN, f"--launcher={launcher}", "--nproc-per-node=1", LIGHT, "--until", pbs.file("go"), "--begun", pbs.file("begun"))
               for pbs, launcher in zip(jobs, ("pbs_tmrsh", "pbsdsh", "tm"))]
    for pbs, job in zip(jobs, started):
        until(lambda pbs=pbs: pbs.exists("begun.*", 3), LIMIT, job.said)
    for pbs in jobs:
        pbs.file("go", "")
    for job in started:
        assert_trained(job.wait(), NODES, pbs_cluster.address("node1"), per_node=1)


def test_each_host_has_one_agent_whatever_the_chunks_are(pbs):
    """The node file has the name of a host once per MPI process."""
    show = "echo $(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK $PBS_NODENUM $OMP_NUM_THREADS $(wc -l < $PBS_NODEFILE)"
    select = "1:ncpus=4:mpiprocs=4:host=node2+1:ncpus=2:mpiprocs=1:host=node1+1:ncpus=2:mpiprocs=2:host=node3"
    job = pbs.submit(DDRUN, "--nproc-per-node=2", "sh", "-c", show, select=select)
    done = job.wait()
    assert done.rc == 0, job.said()
    assert sorted(done.out.splitlines(), key=lambda line: line.split()[1]) == [
        f"{name} {2 * n + r}/6 {r} {n} 1 7" for n, name in enumerate(("node2", "node1", "node3")) for r in range(2)]


def test_output_and_exit_code_go_the_way_of_the_job(pbs):
    """Output goes to the files of qsub -o and -e, in whole lines; the exit code is Exit_status."""
    written = pbs.file("written")  # by the other ranks, which end with rank 2
    worker = ("i=0; while [ $i -lt 200 ]; do i=$((i + 1)); echo out $RANK $i; echo err $RANK $i >&2; done; "
              f"touch {written}.$RANK; [ $RANK = 2 ] || exec sleep 600; "
              f"until [ -e {written}.0 ] && [ -e {written}.1 ]; do sleep 0.05; done; exit 7")
    pbs.file("script", f"#!/bin/sh\nexec {DDRUN} --nproc-per-node=1 sh -c '{worker}'\n")
    options = ["-l", f"select={SELECT}", "-l", "place=scatter", "-o", pbs.file("out"), "-e", pbs.file("err")]
    job = Job(pbs, ["qsub", "-W", "block=true", *options, "script"])
    assert job.wait().rc == 7 and job.attribute("Exit_status") == 7, job.said()
    job.wait_for_files()
    for name in ("out", "err"):
        lines = [line for line in job.text(name).splitlines() if line.startswith(name)]
        assert sorted(lines) == sorted(f"{name} {rank} {i}" for rank in range(3) for i in range(1, 201))
    assert "rank 2 on node3.cluster.test failed (exit code 7)" in job.err


@pytest.mark.parametrize("launcher", ["pbs_tmrsh", "tm"])
def test_qdel_gives_the_workers_of_all_nodes_their_time(pbs, launcher):
    """PBS sends SIGTERM to the first node only, and kills everything when the script's session has ended. A worker gets one
    SIGTERM."""
    saved = pbs.file("saved")
    worker = f"trap 'sleep $((RANK + 1)); echo told >>{saved}.$RANK; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    job = pbs.submit(DDRUN, f"--launcher={launcher}", "--nproc-per-node=1", "--shutdown-timeout=50s", "sh", "-c", worker)
    job.wait_for("ready", 3)
    pbs.popen(["qdel", job.id]).wait(LIMIT)
    job.wait_for_files()
    assert [job.text(f"saved.{rank}") for rank in range(3)] == ["told\n"] * 3, job.said()
    assert "cannot start ddrun" not in job.text("err")


def test_the_time_limit_is_told_to_the_workers_of_all_nodes_before_it_comes(pbs):
    """ddrun reads the time limit from qstat. A job that ignores the signal ends at its limit."""
    job = pbs.submit(DDRUN, "--nproc-per-node=1", "--signal-before-end=USR1@50s", program("hear.py"), "USR1", "TERM",
                     options=["-l", "walltime=00:00:58"], env={"GO": pbs.file("go")})
    job.wait_for("USR1", 3)
    pbs.file("go", "")
    assert job.wait().rc == 0, job.said()


def test_a_job_over_its_limit_has_its_workers_ended_on_all_nodes(pbs):
    job = pbs.submit(DDRUN, "--nproc-per-node=1", program("hear.py"), "TERM", options=["-l", "walltime=00:10:00"], env={"READY": pbs.file("ready")})
    until(lambda: pbs.exists("ready.*", 3), LIMIT, job.said)
    pbs.popen(["qalter", "-l", "walltime=1", job.id]).wait(LIMIT)
    done = job.wait()
    heard = sorted((line["rank"], line["signal"]) for line in json_lines(done.out) if "signal" in line)
    assert done.rc != 0 and heard == [(rank, "SIGTERM") for rank in range(3)], job.said()


def test_qsig_reaches_the_workers_of_all_nodes_once(pbs):
    """ddrun is the job itself: the shell of a script would die of the signal."""
    go, ready = pbs.file("go"), pbs.file("ready")
    options = ["-l", f"select={SELECT}", "-l", "place=scatter", "-o", pbs.file("out"), "-e", pbs.file("err"), "-v",
               f"GO={go},READY={ready},HEARD={pbs.file('heard')},PYTHON_EXEC={pbs.env['PYTHON_EXEC']}"]
    job = Job(pbs, ["qsub", "-W", "block=true", *options, "--", DDRUN, "--nproc-per-node=1", program("hear.py"), "USR1"])
    until(lambda: pbs.exists("ready.*", 3), LIMIT, job.said)
    pbs.popen(["qsig", "-s", "USR1", job.id]).wait(LIMIT)
    until(lambda: pbs.exists("heard.*", 3), LIMIT, job.said)
    pbs.file("go", "")
    assert job.wait().rc == 0, job.said()
    job.wait_for_files()
    heard = sorted((line["rank"], line["signal"]) for line in json_lines(job.out) if "signal" in line)
    assert heard == [(rank, "SIGUSR1") for rank in range(3)], job.said()


def test_each_job_of_an_array_is_one_of_its_own(pbs):
    script = f'[ ! -e "$PBS_ARRAY_INDEX" ] && {DDRUN} --nproc-per-node=1 sh -c \'echo $PBS_ARRAY_INDEX $RANK/$WORLD_SIZE; ' \
             f'touch {pbs.file("here")}.$PBS_ARRAY_INDEX.$RANK; until [ -e {pbs.file("go")} ]; do sleep 0.05; done\' >"out.$PBS_ARRAY_INDEX"'
    job = pbs.submit(script=script, options=["-J", "1-2"])
    until(lambda: pbs.exists("here.*", 6), LIMIT, job.said)  # both at once, on the same nodes
    pbs.file("go", "")
    assert job.wait().rc == 0, job.said()
    for index in (1, 2):
        assert sorted(job.text(f"out.{index}").splitlines()) == [f"{index} {rank}/3" for rank in range(3)]


def test_a_job_goes_on_without_a_crashed_node(pbs):
    """PBS permits it with tolerate_node_failures."""
    worker = f"echo $RANK/$WORLD_SIZE; until [ -e {pbs.file('go')} ]; do sleep 0.05; done; echo done $RANK"
    job = pbs.submit(DDRUN, "--nnodes=2:3", "--heartbeat=15s", "--nproc-per-node=1", "sh", "-c", worker,
                     options=["-W", "tolerate_node_failures=all"])
    job.wait_for("/3", 3)
    pbs.cluster.crash("node3")
    job.wait_for("/2", 2)
    pbs.file("go", "")
    done = job.wait()
    assert done.rc == 0 and some_line(done.err, "lost", "node3.cluster.test"), job.said()
    assert sorted(done.out.splitlines()[-2:]) == ["done 0", "done 1"]


@with_torch
@pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")
def test_a_warm_job_in_a_staged_environment_survives_a_kill_and_the_crash_of_a_node(pbs):
    """The first node runs the script of the job: PBS ends the job with it."""
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    venv = WarmVenv(pbs.place)
    pbs.env.update(venv.env)
    job = pbs.submit(DDRUN, "--nnodes=2:3", "--heartbeat=15s", "--nproc-per-node=1", "--max-restarts=1", "--log-level=info",
                     *venv.options, program("resume_torch.py"), pbs.file("checkpoint"), pbs.file("end"),
                     options=["-W", "tolerate_node_failures=all"])
    job.wait_for('"first"', 3)
    pbs.cluster.kill("node2", venv.worker(pbs.cluster, "node2"))
    job.wait_for('"first"', 6)
    pbs.cluster.crash("node3")
    job.wait_for('"first"', 8)
    pbs.file("end", "")
    done = job.wait()
    assert done.rc == 0, job.said()
    begun = [line for line in json_lines(done.out) if "first" in line]
    assert {line["restarts"] for line in begun[3:6]} == {1} and all(line["first"] > 0 for line in begun[6:]), begun
    ended = [line for line in json_lines(done.out) if "steps" in line]
    assert sorted(line["rank"] for line in ended) == [0, 1] and all(line["equal"] and line["world"] == 2 for line in ended), ended
    venv.assert_imported_once_on(NODES, done.err)


def test_the_doctor_finds_nothing_wrong_in_a_healthy_job(pbs):
    """Each node's part arrives over the network, and none is missing."""
    job = pbs.submit(script=f"for i in 1 2 3 4 5; do {DDCTL} doctor --format=json; done; {DDRUN} --doctor train.py")
    done = job.wait()
    looks = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    assert done.rc == 0 and len(looks) == 5, job.said()
    for look in looks:
        assert look["findings"] == [] and [node["node"] for node in look["nodes"]] == [f"{name}.cluster.test" for name in NODES], look
    assert "3 nodes" in done.out and done.err == "", job.said()


def test_a_node_that_is_taken_offline_gives_its_place_to_a_spare(pbs):
    saves = "\n".join(["import json, os, signal, socket, sys, time", "say = lambda **what: os.write(1, (json.dumps(what) + '\\n').encode())",
                       "node = socket.gethostname().partition('.')[0]",
                       "signal.signal(signal.SIGUSR1, lambda *_: say(saved=node))",
                       "say(begun=node, restarts=os.environ['TORCHELASTIC_RESTART_COUNT'])",
                       "while not os.path.exists(sys.argv[1]): time.sleep(0.02)"])

    def taken(option, node, *more):
        done = pbs.cluster.ctl.run(["pbsnodes", option, *more, node])
        assert done.rc == 0, done.err

    job = pbs.submit(DDRUN, "--nnodes=2:2", "--nproc-per-node=1", "--watch-nodes=1s", "--drain-signal=USR1@15s",
                     pbs.file("saves.py", saves), pbs.file("go"))
    job.wait_for("begun", 2)
    first = [line["begun"] for line in json_lines(job.out)]
    victim = max(first)
    taken("-o", victim, "-C", "broken fan")
    try:
        job.wait_for("begun", 4)
        pbs.file("go", "")
        done = job.wait()
    finally:
        taken("-r", victim, "-C", "")
    assert done.rc == 0, job.said()
    lines = json_lines(done.out)
    begun = [line for line in lines if "begun" in line]
    assert {line["begun"] for line in begun[2:]} == set(NODES) - {victim} and {line["restarts"] for line in begun} == {"0"}
    assert sorted(line["saved"] for line in lines if "saved" in line) == sorted(first)
    assert some_line(done.err, victim, "is taken offline by PBS (reason: broken fan)")


def test_ddctl_finds_a_node_by_its_name_without_the_domain(pbs):
    def ctl(*argv):
        return pbs.cluster.run([DDCTL, *argv], node="node2", user=pbs.user)

    worker = f"echo $RANK/$WORLD_SIZE; until [ -e {pbs.file('go')} ]; do sleep 0.05; done"
    job = pbs.submit(DDRUN, "--nnodes=2:3", UNTIRED, "--nproc-per-node=1", "sh", "-c", worker)
    job.wait_for("/3", 3)
    assert ctl("stacks", "--node=node3").rc == 0
    assert "unknown node 'node' in this job" in ctl("drain", "node").err
    elsewhere = pbs.cluster.run([DDCTL, "status"], node="ctl", user=pbs.user)
    assert elsewhere.rc == 1 and "tip: run ddctl on a node of the job: ssh NODE ddctl status" in elsewhere.err, elsewhere.err
    drained = ctl("drain", "node3")
    assert drained.rc == 0, drained.err
    job.wait_for("/2", 2)
    pbs.file("go", "")
    assert job.wait().rc == 0, job.said()


def test_a_job_that_is_rerun_remembers_its_charges(pbs):
    """A manager reruns the job: PBS does not permit it to the owner. The worker of node2 fails in the first round of each run."""
    worker = (f'[ "$(hostname -s)" != node2 ] || [ "$DDRUN_ROUND" != 0 ] || {{ echo "ValueError: bad memory in run $RUN" >&2; exit 3; }}; '
              f'touch {pbs.place}/round.$RUN.$DDRUN_ROUND.$RANK; [ $RUN = 2 ] && [ $DDRUN_ROUND = 1 ] || exec sleep 1000')
    script = "\n".join([f"export HOME={pbs.place} RUN=1; [ ! -e round.1.1.0 ] || RUN=2",
                        f"exec {DDRUN} {UNTIRED} --nproc-per-node=1 --max-restarts=1 --blame-window=1h --report=report.$RUN sh -c {shlex.quote(worker)}"])
    job = pbs.submit(script=script)
    until(lambda: pbs.exists("round.1.1.*", 3) and pbs.exists(f".ddrun/pbs.{job.id}.*.charges"), LIMIT, job.said)
    done = pbs.cluster.ctl.run(["qrerun", job.id])
    assert done.rc == 0, done.err
    assert job.wait().rc == 0, job.said()
    report = json.loads(job.text("report.2"))
    assert [(c["node"], c["charges"]) for c in report["charges"]] == [("node2.cluster.test", 2)], job.said()
    assert some_line(job.err, "node2.cluster.test stays in the job", "2 failures within --blame-window"), job.said()
    assert not pbs.exists(".ddrun/*.charges"), "the job has succeeded"


def test_a_requeue_that_pbs_does_not_permit_is_told(pbs):
    """OpenPBS permits qrerun to managers and operators, not to the owner of the job."""
    done = pbs.submit(DDRUN, "--nproc-per-node=1", "--exit-rules=75=requeue", "sh", "-c", "[ $RANK = 0 ] && exit 75; exec sleep 600").wait()
    assert done.rc == 75, done.err
    assert some_line(done.err, "PBS did not requeue job", "its exit code requests it (--exit-rules)", "Unauthorized Request"), done.err
    assert "tip: PBS permits qrerun to its managers and operators only" in done.err
