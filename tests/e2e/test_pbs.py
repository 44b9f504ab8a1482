"""PBS's effects on a job, on three nodes in namespaces. The stand-ins for mom and pbs_tmrsh behave as measured with OpenPBS
23.06: signals reach the first node only, and the end of the script's session kills everything on all nodes."""

import json
import os
import re
import signal

import pytest

from support import DDRUN, HERE, some_line
from test_launch import pbs, ssh  # noqa: F401
from test_tm import stand_in
from test_slurm import LIMIT, until

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


class Mom:
    """The mom of a job, which sees the job's processes from outside their namespaces."""

    def __init__(self, ssh, job):  # noqa: F811
        self.cluster, self.job, self.names = ssh.cluster, job, ssh.names[:3]
        self.before = {name: {p.outer for p in self.cluster.processes(name)} for name in self.names[1:]}
        self.session = None

    def session_of_script(self):
        """Return the processes of the script's session: ddrun, its agent, the daemon and the starters, but no workers."""
        if self.session is None:
            found = [p for p in self.cluster.processes(self.names[0]) if p.cmdline.startswith(DDRUN + " ")]
            outer = {p.outer for p in found}
            self.session = [os.getsid(p.outer) for p in found if p.parent not in outer][0]
        return [p for p in self.cluster.processes(self.names[0]) if sid(p.outer) == self.session]

    def signal(self, sig):
        """Signal the script's session, as qdel and qsig do."""
        sent = 0
        for p in self.session_of_script():
            try:
                os.kill(p.outer, sig)
                sent += 1
            except ProcessLookupError:
                pass
        return sent


def sid(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def ready(job, pbs, n=3):  # noqa: F811
    def there():
        assert job.rc is None, job.err + pbs.output()
        return (job.out + pbs.output()).count("ready") == n
    until(there, LIMIT, lambda: job.out + job.err + pbs.output())


@pytest.fixture
def mom(pbs, ssh):  # noqa: F811
    """Return mom(*args, **env), which runs ddrun as the script of a job and returns the job's Mom."""
    jobs = []

    def start(*args, **env):
        started = ssh.slurm.file("started")
        os.makedirs(started, exist_ok=True)
        os.chmod(started, 0o777)
        job = pbs(*args, PBS_STARTED=started, **env)
        jobs.append(job)
        return Mom(ssh, job)

    yield start
    for job in jobs:
        job.close()


def test_starters_are_deaf_to_what_pbs_sends_and_workers_hear_hangups(mom, pbs, ssh):  # noqa: F811
    m = mom("--nproc-per-node=1", "sh", "-c", "echo ready; grep SigIgn /proc/self/status; while [ ! -e go ]; do sleep 0.05; done")
    ready(m.job, pbs)
    ssh.slurm.file("go", "")
    assert m.job.wait(LIMIT).rc == 0, m.job.err

    def ignored(text):
        return {s for s in range(1, 32) if int(text.split()[1], 16) >> (s - 1) & 1}
    started = ssh.slurm.file("started")
    for name in ("node2", "node3"):
        with open(f"{started}/{name}", encoding="utf-8") as f:
            assert {signal.SIGTERM, signal.SIGUSR1} <= ignored(f.read())
    workers = [line for line in (m.job.out + pbs.output()).splitlines() if "SigIgn" in line]
    assert len(workers) == 3, m.job.out + m.job.err + pbs.output()
    assert not any({signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1} & ignored(line) for line in workers)


def test_workers_that_do_not_end_are_killed_before_pbs_does_it(mom, pbs, ssh):  # noqa: F811
    """ddrun kills them 8 s after qdel by default, so that its report still appears: PBS waits at least 10 s. Without PBS the
    default is 30 s, in which these workers end by themselves."""
    late = ssh.slurm.file("late")
    worker = f"trap 'sleep 25; touch {late}.$RANK; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    m = mom("--nproc-per-node=1", "sh", "-c", worker)
    ready(m.job, pbs)
    m.signal(signal.SIGTERM)
    done = m.job.wait(LIMIT)
    assert done.rc == 143, done.err
    assert not ssh.slurm.exists("late.*")


def test_the_end_is_asked_of_pbs_and_told_on_all_nodes(mom, pbs, ssh):  # noqa: F811
    """The first node alone asks, once. The answer, a minute and a second before the end, comes when all workers listen."""
    folder = ssh.slurm.file("bin")
    begun = ssh.slurm.file("begun")
    os.makedirs(folder)
    os.chmod(folder, 0o755)
    ssh.slurm.file("bin/qstat", f"""#!/bin/sh
echo "$(hostname) $*" >> {ssh.slurm.place}/asked
until [ -e {begun}.0 ] && [ -e {begun}.1 ] && [ -e {begun}.2 ]; do sleep 0.1; done
echo "Job Id: $2"
echo "    Resource_List.walltime = 00:01:01"
LC_ALL=C date "+    stime = %a %b %d %H:%M:%S %Y"
""")
    path = os.path.join(os.path.dirname(__file__), "programs") + f":{folder}:/usr/bin:/bin"
    worker = f"trap 'echo told $RANK; exit 143' TERM; touch {begun}.$RANK; while :; do sleep 0.05; done"
    m = mom("--nproc-per-node=1", "--signal-before-end=TERM@1m", "sh", "-c", worker, PATH=path)
    done = m.job.wait(LIMIT)
    assert done.rc == 143, done.err
    assert sorted(line for line in (done.out + pbs.output()).splitlines()) == ["told 0", "told 1", "told 2"], done.err
    with open(ssh.slurm.file("asked"), encoding="utf-8") as f:
        assert f.read() == "node1 -f 77.server\n"


@pytest.mark.parametrize("gone", ["script", "first node"])
def test_agents_end_by_themselves_when_nobody_is_left_to_tell_them(mom, pbs, ssh, gone):  # noqa: F811
    """PBS may need minutes to notice a lost node; the fixture checks that nothing is left on the others."""
    m = mom("--nproc-per-node=1", "--shutdown-timeout=1s", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
    ready(m.job, pbs)
    session = m.session_of_script()
    rest = [p for p in ssh.cluster.processes("node1") if not p.cmdline.startswith(("sshd:", "/usr/sbin"))]
    script = [p for p in session if p.cmdline.startswith(DDRUN + " ") and p.parent not in {q.outer for q in session}]
    assert len(script) == 1, session
    for p in script if gone == "script" else session + rest:
        ssh.cluster.kill("node1", p.pid)

    def left():
        return [p for name in ("node2", "node3") for p in ssh.cluster.processes(name)
                if p.outer not in m.before[name] and ("ddrun" in p.cmdline or "echo ready" in p.cmdline)]
    until(lambda: not left(), LIMIT, left)


def test_a_start_that_hangs_ends_with_the_job(mom, pbs):  # noqa: F811
    """The node is lost: pbs_tmrsh hangs, and ignores SIGTERM as ddrun started it."""
    m = mom("--nproc-per-node=1", "--rdzv-timeout=1s", "--shutdown-timeout=1s", "true", PBS_DEAD="node3")
    done = m.job.wait(LIMIT)
    assert done.rc == 1, done.err
    assert re.search(r"timed out after .* waiting for node\S*3", done.err), done.err  # others may be late, too


def test_each_node_of_a_torque_job_has_as_many_workers_as_it_has_gpus_of_the_job(pbs, ssh):  # noqa: F811
    """Only the first node has the file, and the variables that Torque's mom may set."""
    gpus = ssh.slurm.file("gpus", "node1-gpu2\nnode1-gpu0\nnode3-gpu1\nnode2-gpu0\nnode2-gpu1\nnode2-gpu3\n")
    show = "echo $(hostname) $LOCAL_RANK $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
    expected = [f"node{n} {r} {gpus} PCI_BUS_ID" for n, gpus in ((1, "0,2"), (2, "0,1,3"), (3, "1")) for r in range(gpus.count(",") + 1)]
    for set_there in ({}, {"CUDA_VISIBLE_DEVICES": "0,2"}):
        with pbs("--nproc-per-node=gpu", "sh", "-c", show, PBS_GPUFILE=gpus, PBS_VERSION="TORQUE-6.1.3", **set_there) as job:
            done = job.wait(LIMIT)
        assert (done.rc, sorted(done.out.splitlines())) == (0, expected), done.err
    with pbs("--nproc-per-node=gpu", "sh", "-c", show, PBS_GPUFILE=gpus, CUDA_VISIBLE_DEVICES="1") as job:  # set by the user
        done = job.wait(LIMIT)
    assert (done.rc, sorted(done.out.splitlines())) == (0, [f"node{n} 0 1" for n in (1, 2, 3)]), done.err


# --- PBS's library without pbs_tmrsh: a stand-in, which starts tasks by the stand-in for pbs_tmrsh ---


@pytest.fixture
def library(ssh):  # noqa: F811
    """Return the environment of a script on nodes without pbs_tmrsh."""
    folder = ssh.slurm.file("lib")
    os.makedirs(folder)
    os.chmod(folder, 0o755)
    os.chmod(stand_in(folder), 0o755)
    return {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": folder, "STANDIN_TMRSH": os.path.join(HERE, "programs", "pbs_tmrsh"),
            "PBS_MOMPORT": "15003", "STANDIN_CALLS": ssh.slurm.file("calls")}


def test_pbs_library_starts_a_script_on_all_hosts_where_pbs_tmrsh_is_missing(pbs, ssh, library):  # noqa: F811
    """ddrun chooses the library by itself and starts each host once, though the node file names it twice. All output arrives at
    ddrun."""
    with pbs("--nproc-per-node=2", "sh", "-c", "echo $RANK/$WORLD_SIZE $(hostname) $FROM_SCRIPT $PWD $PBS_NODENUM", **library) as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err + pbs.output()
    assert pbs.output() == ""
    assert sorted(done.out.splitlines()) == [f"{r}/6 node{r // 2 + 1} a module's path {ssh.slurm.place} {r // 2}" for r in range(6)]
    with open(library["STANDIN_CALLS"], encoding="utf-8") as f:
        assert sorted(line for line in f.read().splitlines() if "spawn" in line) == ["spawn 2", "spawn 4"]


def test_a_worker_that_fails_where_pbs_library_has_started_it(pbs, library):  # noqa: F811
    with pbs("--nproc-per-node=1", "sh", "-c", "[ $RANK = 2 ] && { printf 'last words' >&2; exit 9; }; sleep 600", **library) as job:
        done = job.wait(LIMIT)
    assert done.rc == 9 and "last words" in done.err and "rank 2 on node3 failed" in done.err, done.err


def test_a_node_that_pbs_library_never_starts_does_not_hold_the_job(mom, library):
    m = mom("--nproc-per-node=1", "--rdzv-timeout=1s", "--shutdown-timeout=1s", "true", STANDIN_DEAD="node3", **library)
    done = m.job.wait(LIMIT)
    assert done.rc == 1
    assert re.search(r"timed out after .* waiting for node\S*3", done.err), done.err  # others may be late, too


def test_what_waits_for_nodes_ends_when_ddrun_is_killed(mom, pbs, library, ssh):  # noqa: F811
    m = mom("--nproc-per-node=1", "--shutdown-timeout=1s", "sh", "-c", "echo ready; while :; do sleep 0.05; done", **library)
    ready(m.job, pbs)
    session = m.session_of_script()
    script = [p for p in session if p.cmdline.startswith(DDRUN + " ") and p.parent not in {q.outer for q in session}]
    assert len(script) == 1 and len([p for p in session if "ddrun-tm" in p.cmdline]) == 2, session
    ssh.cluster.kill("node1", script[0].pid)

    def left():
        return [p for name in m.names for p in ssh.cluster.processes(name)
                if p.outer not in m.before.get(name, ()) and ("ddrun" in p.cmdline or "echo ready" in p.cmdline)]
    until(lambda: not left(), LIMIT, left)


# --- the doctor: the output of PBS's starter does not return to ddrun ---

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")


def examine(job):
    with job:
        done = job.wait(LIMIT)
    return json.loads(done.out), done


def test_the_doctor_starts_by_pbs_library_too(pbs, library):  # noqa: F811
    found, done = examine(pbs("doctor", "--format=json", command=DDCTL, **library))
    assert (done.rc, found["findings"]) == (0, []), done.err
    assert [n["node"] for n in found["nodes"]] == ["node1", "node2", "node3"]


def test_the_doctor_finds_what_is_wrong_on_a_node_of_a_pbs_job(pbs, ssh):  # noqa: F811
    node = ssh.cluster.machines["node3"]
    node.run(["mount", "-o", "remount,size=1M", "/dev/shm"])
    try:
        with pbs("--doctor", "--nproc-per-node=4", "train.py") as job:  # in front of the command line of a job that does not start
            done = job.wait(LIMIT)
    finally:
        node.run(["mount", "-o", "remount,size=50%", "/dev/shm"])
    assert done.rc == 1, done.err
    assert some_line(done.out, "3 nodes") and some_line(done.out, "node3: ", "/dev/shm"), done.out


def test_the_doctor_names_a_node_of_a_pbs_job_that_says_nothing(pbs):  # noqa: F811
    found, done = examine(pbs("doctor", "--format=json", "--limit=20s", "--launch-command=pbs_tmrsh", command=DDCTL, PBS_HOSTS="node1 node2"))
    assert done.rc == 1
    assert any(f["nodes"] == "node3" and "start" in f["what"] for f in found["findings"]), found
    assert [n["node"] for n in found["nodes"]] == ["node1", "node2"]
