"""ddrun under a real Slurm: four nodes in namespaces (tests/cluster), with real PyTorch or a light training in its place.

DDRUN_LONG=1: longer delays, and PyTorch instead of the light training.
"""

import glob
import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

from cluster import until
from slurm import no_memory_limits
from support import DDRUN, PYTHON, json_lines, some_line, told

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = os.environ.get("DDRUN_LONG", "") not in ("", "0")
TORCH = os.path.join(HERE, "train_torch.py")
LIGHT = os.path.join(HERE, "train_light.py")
USUAL = TORCH if LONG else LIGHT
LIMIT = 300  # seconds; only to end a hang
GRACE = 3  # --shutdown-timeout of the tests that end a job
UNTIRED = "--heartbeat=10m"  # longer than LIMIT: ddrun must notice a loss at once, and not by missed heartbeats

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


class Slurm:
    """Submits ddrun jobs to one cluster."""

    def __init__(self, made):
        self.cluster = made
        self.user = self._user()
        self.place = made.directory("job", self.user)
        self.env = {"PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1",
                    "DDRUN_HEARTBEAT": "60s",  # for scripts of jobs: see Cluster.popen()
                    "TORCHINDUCTOR_CACHE_DIR": made.work}  # importing torch creates it

    def _user(self):
        """Return an ordinary user who can run Python and ddrun here, else root."""
        for command in ([PYTHON, "-c", "open('trainer.py')"], [DDRUN, "--version"]):
            if self.cluster.run(command, node=self.cluster.names[0], user="alice", cwd=HERE).rc != 0:
                return "root"
        return "alice"

    def file(self, name, text=None):
        """Return a path that all nodes see; write text to it."""
        path = os.path.join(self.place, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(path, 0o755)
        return path

    def exists(self, name, count=1):
        return len(glob.glob(self.file(name))) >= count

    def popen(self, argv, env=None, **how):
        return self.cluster.popen(argv, user=self.user, cwd=self.place, env={**self.env, **(env or {})}, **how)

    def start(self, *args, srun=("-N4",), before=(), **how):
        """srun [srun...] [before...] ddrun ARGS"""
        return self.popen(["srun", *srun, *before, DDRUN, *args], **how)

    def run(self, *args, timeout=LIMIT, **how):
        with self.start(*args, **how) as job:
            return job.wait(timeout)

    @contextmanager
    def training(self, *args, options=(), program=USUAL, ranks=8, **how):
        """Run a job that trains until it is ended; enter when all ranks have done a step."""
        begun = self.file("begun")
        with self.start("--nproc-per-node=2", f"--shutdown-timeout={GRACE}s", *args, program, "--begun", begun,
                        "--forever", *options, **how) as job:
            def ready():
                assert job.rc is None, job.out + job.err
                complete = job.out.rpartition("\n")[0]  # lines come later than the files
                return len(glob.glob(begun + ".*")) == len(json_lines(complete)) == ranks
            until(ready, LIMIT, lambda: f"training has begun: {job.out}{job.err}")
            yield job

    def processes(self, node, name):
        """Return the node's processes whose program has this name."""
        return [p for p in self.cluster.processes(node) if os.path.basename(p.cmdline.split(" ")[0]) == name]

    def guardian_and_agent(self, node):
        found = self.processes(node, "ddrun")
        numbers = {p.outer for p in found}
        guardians = [p for p in found if p.parent not in numbers]
        agents = [p for p in found if p.parent in numbers]
        assert len(guardians) == len(agents) == 1, found
        return guardians[0], agents[0]


@pytest.fixture
def slurm(cluster):
    """Yield the cluster's Slurm; assert that the test leaves nothing."""
    before = cluster.snapshot()
    yield Slurm(cluster)
    cluster.assert_nothing_left(before)


@pytest.fixture
def slurm_with(new_cluster):
    """slurm_with(family=6, ...): the same on a cluster with these options."""
    started = []

    def start(**options):
        made = new_cluster(**options)
        started.append((made, made.snapshot()))
        return Slurm(made)

    yield start
    for made, before in started:
        made.assert_nothing_left(before)


def in_time(told):
    """Return this result of ddctl, or None if an agent was too slow to answer."""
    return told if told.rc == 0 or not re.search("answer|accept no", told.err) else None


def ours(text):
    """Return ddrun's own messages without time stamps and the name of the node: lines of Slurm are left out."""
    lines = [line for line in told(text).splitlines() if line.startswith(("ddrun", "ddrund"))]
    return [re.sub(r"^ddrund?(\[[^]]*\])?: ", "", line) for line in lines]


def assert_trained(done, names, address, per_node=2, silent=True):
    """Assert that each rank trained once, block-wise in the order of the host list, with the right sum, and that ddrun itself
    was silent."""
    world = len(names) * per_node
    assert done.rc == 0, done.out + done.err
    assert not silent or ours(done.err) == []
    lines = sorted(json_lines(done.out), key=lambda line: line["rank"])
    assert [line["rank"] for line in lines] == list(range(world))
    assert [(line["node"], line["local_rank"]) for line in lines] == [
        (name, local) for name in names for local in range(per_node)]
    assert {(line["world"], line["reduced"], line["equal"]) for line in lines} == {
        (world, world * (world + 1) / 2, True)}
    assert {line["master_addr"] for line in lines} == {address}
    assert len({line["master_port"] for line in lines}) == 1
    return lines


def trained(slurm, done, **how):
    return assert_trained(done, slurm.cluster.names, slurm.cluster.address(slurm.cluster.names[0]), **how)


# --- normal jobs ---


def test_a_step_trains_on_all_nodes(slurm):
    trained(slurm, slurm.run("--nproc-per-node=2", TORCH, "--ddp"))


def test_c_programs_meet_through_libddrun(slurm):
    done = slurm.run("--nproc-per-node=2", os.path.join(os.path.dirname(DDRUN), "examples", "hello_ddrun"))
    assert done.rc == 0 and ours(done.err) == [], done.err
    assert [line.rpartition(",")[0] for line in done.out.splitlines()] == [
        f"rank {2 * node + local} of 8: local rank {local} of 2 on node {node} of 4, {name}"
        for node, name in enumerate(slurm.cluster.names) for local in range(2)]


def test_a_batch_script_trains_on_all_nodes(slurm):
    slurm.file("batch", f"#!/bin/sh\nsrun --ntasks-per-node=1 {DDRUN} --nproc-per-node=1 {LIGHT}\n")
    with slurm.popen(["sbatch", "--wait", "-N4", "--output=out", "--error=err", "batch"]) as job:
        done = job.wait(LIMIT)
    with open(slurm.file("out"), encoding="utf-8") as out, open(slurm.file("err"), encoding="utf-8") as err:
        trained(slurm, type(done)(done.rc, out.read(), err.read()), per_node=1)


def test_a_batch_job_with_workers_that_fail_has_their_code(slurm):
    slurm.file("batch", f"#!/bin/sh\nsrun --ntasks-per-node=1 {DDRUN} --nproc-per-node=2 {LIGHT} --die-rank 6\n")
    with slurm.popen(["sbatch", "--wait", "-N4", "batch"]) as job:
        assert job.wait(LIMIT).rc == 7


def test_ddctl_names_the_nodes_wherever_it_is_asked(slurm):
    ddctl = os.path.join(os.path.dirname(DDRUN), "ddctl")
    asked = {"batch": "", "step": "srun -N4 -n8 --overcommit ", "part": "srun -N1 -n1 --relative=2 "}
    ask = slurm.file("ask", f"#!/bin/sh\nexec {ddctl} hosts --fold 2>>said\n")  # srun has a stderr of its own for its messages
    script = "".join(f"{srun}{ask} >{name}\n" for name, srun in asked.items())
    slurm.file("script", f"#!/bin/sh\nset -e\n{script}scontrol show hostnames >wanted\n")
    with slurm.popen(["sbatch", "--wait", "-N4", "--error=err", "script"]) as job:
        assert job.wait(LIMIT).rc == 0, open(slurm.file("err")).read()
    with slurm.popen(["salloc", "-N4", ddctl, "hosts"]) as job:
        shell = job.wait(LIMIT)
    lines = {name: open(slurm.file(name)).read().split() for name in (*asked, "wanted", "said")}
    names = slurm.cluster.names
    assert lines["wanted"] == names == shell.out.split(), shell.err
    whole = f"{names[0][:-1]}[{names[0][-1]}-{names[-1][-1]}]"
    assert lines == {"batch": [whole], "step": [whole] * 8, "part": [names[2]], "wanted": names, "said": []}


def test_the_key_comes_from_munge(slurm):
    done = slurm.run("--log-level=info", LIGHT)
    assert done.rc == 0 and "key source: MUNGE" in done.err, done.err


def test_a_single_node_needs_nobody(slurm):
    assert_trained(slurm.run("--nproc-per-node=2", LIGHT, srun=["-N1", "-w", "node3"]), ["node3"], "127.0.0.1")


def test_two_jobs_at_once_do_not_meet(slurm):
    go = slurm.file("go")
    args = ["--nproc-per-node=1", LIGHT, "--until", go, "--begun"]
    with slurm.start(*args, slurm.file("one")) as one, slurm.start(*args, slurm.file("two")) as two:
        until(lambda: slurm.exists("one.*", 4) and slurm.exists("two.*", 4), LIMIT,
              lambda: one.out + one.err + two.out + two.err)
        slurm.file("go", "")
        ports = {trained(slurm, job.wait(LIMIT), per_node=1)[0]["master_port"] for job in (one, two)}
    assert len(ports) == 2


# --- time and place ---


@pytest.mark.parametrize("late", ["host", "guests"])
def test_nodes_may_start_apart(slurm, late):
    seconds = 20 if LONG else 4
    test = "=" if late == "host" else "!="
    wrapper = slurm.file("late", f'#!/bin/sh\n[ "$SLURM_NODEID" {test} 0 ] && sleep {seconds}\nexec "$@"\n')
    start = time.monotonic()
    done = slurm.run("--nproc-per-node=2", LIGHT, before=[wrapper])
    trained(slurm, done, silent=False)
    said = re.findall(r"^ddrun.* waiting for .*", done.err, re.M)  # after a while
    assert all("node" in line for line in said) and (said or not LONG), said
    assert time.monotonic() - start > seconds


SQUAT = """#!/bin/sh
# Node 0 waits until others listen on its first port; the guests do not wait for it.
if [ "$SLURM_NODEID" = 0 ]; then
    echo "$SLURM_STEP_RESV_PORTS" > ports.new && mv ports.new ports
    until [ -e squatted ]; do sleep 0.05; done
fi
exec "$@"
"""


@pytest.mark.parametrize("how", ["silent", "garbage", "close", "deaf"])
def test_a_foreign_listener_on_the_first_candidate_is_passed_over(slurm, how):
    with slurm.start("--nproc-per-node=2", LIGHT, before=[slurm.file("squat", SQUAT)]) as job:
        until(lambda: slurm.exists("ports"), LIMIT, lambda: job.err)
        with open(slurm.file("ports"), encoding="ascii") as f:
            first, last = (int(port) for port in f.read().split("-"))
        with slurm.cluster.squat("node1", range(first, last), how) as squatter:
            if how != "deaf":
                squatter.wait_for("guest", LIMIT)
            slurm.file("squatted", "")
            done = job.wait(LIMIT)
    assert trained(slurm, done)[0]["master_port"] == last


def test_a_job_starts_when_another_user_holds_all_ports_of_its_step(slurm):
    with slurm.start("--nproc-per-node=2", LIGHT, before=[slurm.file("squat", SQUAT)]) as job:
        until(lambda: slurm.exists("ports"), LIMIT, lambda: job.err)
        with open(slurm.file("ports"), encoding="ascii") as f:
            first, last = (int(port) for port in f.read().split("-"))
        with slurm.cluster.squat("node1", range(first, last + 1), "close", user="bob"):
            slurm.file("squatted", "")
            done = job.wait(LIMIT)
    assert 30000 <= trained(slurm, done, silent=False)[0]["master_port"] < 32768


def test_foreign_listeners_on_hashed_candidates_are_passed_over(slurm_with):
    """Every other port of the range that candidates are taken from."""
    slurm = slurm_with(mpi_ports="")
    squatted = range(30000, 32768, 2)
    with slurm.cluster.squat("node1", squatted, "silent"):
        for _ in range(3):
            lines = trained(slurm, slurm.run("--nproc-per-node=2", LIGHT))
            assert lines[0]["master_port"] not in squatted and 30000 <= lines[0]["master_port"] < 32768


# --- names and addresses ---


def test_own_names_that_lead_to_loopback(slurm_with):
    slurm = slurm_with(nodes=2, own_loopback=True)
    trained(slurm, slurm.run("--nproc-per-node=1", TORCH, srun=["-N2"]), per_node=1)


@pytest.mark.parametrize("resolve", ["none", "dead"])
def test_names_that_do_not_lead_to_the_node(slurm_with, resolve):
    """Slurm itself knows the addresses."""
    slurm = slurm_with(resolve=resolve)
    trained(slurm, slurm.run("--nproc-per-node=2", "--rdzv-timeout=100s", LIGHT))


def test_names_that_lead_to_another_network(slurm_with):
    slurm = slurm_with(nodes=4, names=["gpu-a", "gpu-b", "gpu-c", "gpu-d"], hostnames=["ip-1", "ip-2", "ip-3", "ip-4"],
                       resolve="second", second="live")
    lines = assert_trained(slurm.run("--nproc-per-node=2", LIGHT), slurm.cluster.names,
                           slurm.cluster.address("gpu-a", "second"))
    assert len(lines) == 8


def test_nodes_with_ipv6_only(slurm_with):
    slurm = slurm_with(nodes=2, family=6)
    trained(slurm, slurm.run("--nproc-per-node=1", TORCH, srun=["-N2"]), per_node=1)


def test_a_dead_second_interface(slurm_with):
    slurm = slurm_with(second="dead", resolve="both")
    trained(slurm, slurm.run("--nproc-per-node=2", LIGHT))


@pytest.mark.parametrize("resolve", ["good", "second"])
def test_the_interface_that_was_asked_for(slurm_with, resolve):
    """The nodes' names may lead to either of the two networks. Where they lead to the other one, gloo must not follow them."""
    slurm = slurm_with(nodes=2, second="live", resolve=resolve)
    for interface, net, named in [("eth0", None, "good"), ("eth1", "second", "second")]:
        done = slurm.run("--nproc-per-node=1", f"--iface={interface}", LIGHT if named == resolve else TORCH, srun=["-N2"])
        assert_trained(done, slurm.cluster.names, slurm.cluster.address("node1", net), per_node=1)


# --- admission of nodes ---


def test_a_node_with_another_key_is_refused_by_name(slurm):
    wrapper = slurm.file("keys", '#!/bin/sh\nDDRUN_KEY=$(echo $((SLURM_NODEID == 2)) | sha256sum | cut -c 1-64)\n'
                                 'export DDRUN_KEY\nexec "$@"\n')
    done = slurm.run("--nproc-per-node=2", "--rdzv-timeout=15s", LIGHT, before=[wrapper])
    assert done.rc in (1, 2), done.err
    assert any("node3" in line and "key" in line for line in done.err.splitlines()), done.err
    assert json_lines(done.out) == []


def test_a_node_without_munge_says_so(slurm):
    slurm.cluster.munge("node2", False)
    done = slurm.run("--nproc-per-node=2", "--rdzv-timeout=20s", LIGHT)  # libmunge tries for seconds on a busy machine
    assert done.rc in (1, 2), done.err
    assert any("node2" in line and "MUNGE" in line for line in done.err.splitlines()), done.err
    assert json_lines(done.out) == []


def test_a_node_that_never_comes_is_named(slurm):
    wrapper = slurm.file("absent", '#!/bin/sh\n[ "$SLURM_NODEID" = 3 ] && exec sleep 60\nexec "$@"\n')
    done = slurm.run("--nproc-per-node=2", "--rdzv-timeout=3s", LIGHT, before=[wrapper])
    assert done.rc == 1, done.err
    assert re.search(r"timed out after .* waiting for node\S*4", done.err), done.err  # others may be late, too
    assert json_lines(done.out) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_lines_of_ranks_are_never_torn(slurm, workers):
    code = ("import os\nfor i in range(100):\n    for piece in (b'rank ', os.environb[b'RANK'], b' line %d' % i, b' end', b'\\n'):\n"
            "        os.write(1, piece)\n")
    done = slurm.run(f"--nproc-per-node={workers}", "--no-python", PYTHON, "-c", code, srun=("-N2",))
    assert done.rc == 0, done.err
    assert sorted(done.out.splitlines()) == sorted(f"rank {r} line {i} end" for r in range(2 * workers) for i in range(100))


# --- the end of a job ---


@pytest.mark.parametrize("how, code", [("exit7", 7), ("segv", 139)])
def test_the_report_has_what_failed_first_of_all_nodes(slurm, how, code):
    """The other ranks of a gloo group fail too, within milliseconds."""
    path = slurm.file("report.json")
    with slurm.training(UNTIRED, f"--report={path}", program=TORCH, ranks=4, srun=("-N2",),
                        options=["--die-rank", "3", "--die-how", how, "--die-when", slurm.file("now")]) as job:
        slurm.file("now", "")
        done = job.wait(LIMIT)
    assert done.rc == code, done.err
    assert len([line for line in ours(done.err) if "rank 3 " in line and "node2" in line]) == 1, done.err
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    assert (report["code"], report["nodes"], report["world_size"]) == (code, 2, 4)
    assert (report["failures"][0]["rank"], report["failures"][0]["node"]) == (3, "node2")
    others = report["others"]
    assert others["stopped"] + others["killed"] + others["failed_later"] == 3


def test_a_node_that_is_not_fit_is_left_out(slurm):
    check = "case $(hostname) in node2) echo row remapping failed; exit 1;; esac"
    done = slurm.run("--nnodes=3:4", f"--last-call={LIMIT}s", "--nproc-per-node=2", f"--health-check={check}", LIGHT)
    assert done.rc == 0, done.err
    assert any("node2" in line and "excluded" in line and "row remapping failed" in line for line in ours(done.err)), done.err
    assert sorted({line["node"] for line in json_lines(done.out)}) == ["node1", "node3", "node4"]


@pytest.mark.parametrize("how, code", [("exit7", 7), ("kill", 137), ("segv", 139)])
@pytest.mark.parametrize("rank", [0, 5])
def test_a_worker_that_dies_gives_its_code(slurm, how, code, rank):
    node = f"node{rank // 2 + 1}"
    with slurm.training(UNTIRED, options=["--die-rank", str(rank), "--die-how", how, "--die-when", slurm.file("now")]) as job:
        slurm.file("now", "")
        done = job.wait(LIMIT)
    assert done.rc == code, done.err
    reports = [line for line in ours(done.err) if f"rank {rank} " in line and node in line]
    assert len(reports) == 1, done.err


def test_a_worker_killed_from_outside_gives_137(slurm):
    with slurm.training(UNTIRED) as job:
        victim = next(line for line in json_lines(job.out) if line["rank"] == 3)
        assert slurm.cluster.kill("node2", victim["pid"])
        done = job.wait(LIMIT)
    assert done.rc == 137, done.err


def test_a_job_whose_time_is_over_has_one_code_on_all_nodes(slurm):
    """srun, which returns the largest of the nodes' exit codes, returns it too; and all workers ran in the directory of
    --chdir."""
    os.makedirs(slurm.file("there"), exist_ok=True)
    job = slurm.run("--timeout=10s", "--chdir=there", "sh", "-c", "pwd; exec sleep 1000", srun=("-N3",))
    assert job.rc == 124 and some_line(job.err, "--timeout", "10"), job.err
    assert set(job.out.split()) <= {slurm.file("there")}


def test_workers_that_ignore_sigterm_end_after_the_grace(slurm):
    with slurm.training(options=["--stubborn", "--die-rank", "2", "--die-when", slurm.file("now")]) as job:
        begin = time.monotonic()
        slurm.file("now", "")
        done = job.wait(LIMIT)
    assert done.rc == 7 and time.monotonic() - begin >= GRACE, done.err


@pytest.mark.parametrize("node", ["node1", "node3"])
@pytest.mark.parametrize("victim", ["guardian", "agent"])
def test_a_killed_agent_ends_the_job_everywhere(slurm, node, victim):
    with slurm.training(UNTIRED) as job:
        guardian, agent = slurm.guardian_and_agent(node)
        assert slurm.cluster.kill(node, (guardian if victim == "guardian" else agent).pid)
        done = job.wait(LIMIT)
    assert done.rc != 0
    assert victim == "guardian" or any(node in line for line in done.err.splitlines()), done.err


def test_a_killed_daemon_ends_the_job_everywhere(slurm):
    with slurm.training(UNTIRED) as job:
        daemon, = slurm.processes("node1", "ddrund")
        assert slurm.cluster.kill("node1", daemon.pid)
        done = job.wait(LIMIT)
    assert done.rc == 1 and any("ddrund" in line or "daemon" in line for line in ours(done.err)), done.err


@pytest.mark.parametrize("stubborn", [False, True])
def test_scancel_ends_the_job_everywhere(slurm, stubborn):
    with slurm.training(options=["--stubborn"] if stubborn else []) as job:
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        assert slurm.cluster.run(["scancel", number], user=slurm.user).rc == 0
        assert job.wait(LIMIT).rc != 0


def test_scancel_with_a_signal_ends_the_job_with_it(slurm):
    with slurm.training(UNTIRED) as job:
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        assert slurm.cluster.run(["scancel", "--signal=INT", f"{number}.0"], user=slurm.user).rc == 0
        assert job.wait(LIMIT).rc == 128 + signal.SIGINT


def test_ctrl_c_ends_the_job_everywhere(slurm):
    with slurm.training(tty=True) as job:
        job.interrupt()
        assert job.wait(LIMIT).rc != 0


def test_ctrl_c_again_kills_workers_that_ignore_the_first(slurm):
    """Slurm sends both to every process of the step; ddrun names the second one when it waits."""
    with slurm.training("--shutdown-timeout=10m", options=["--stubborn"]) as job:
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        interrupt = ["scancel", "--signal=INT", f"{number}.0"]
        assert slurm.cluster.run(interrupt, user=slurm.user).rc == 0
        until(lambda: "Ctrl-C again to kill" in job.err, LIMIT, lambda: job.err)
        assert slurm.cluster.run(interrupt, user=slurm.user).rc == 0
        assert job.wait(LIMIT).rc == 128 + signal.SIGINT, job.err


def test_a_user_signal_comes_once_and_ends_nothing(slurm):
    """As schedulers send it some time before the limit. Slurm itself signals every process of the step."""
    usr1 = slurm.file("usr1")
    with slurm.training(options=["--until", slurm.file("go"), "--usr1", usr1]) as job:
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        assert slurm.cluster.run(["scancel", "--signal=USR1", f"{number}.0"], user=slurm.user).rc == 0
        until(lambda: slurm.exists("usr1.*.1", 8), LIMIT, lambda: job.err)
        slurm.file("go", "")
        trained(slurm, job.wait(LIMIT))
    assert not slurm.exists("usr1.*.2")


def test_a_person_asks_a_running_step_from_another_one(slurm):
    ddctl = os.path.join(os.path.dirname(DDRUN), "ddctl")
    usr1 = slurm.file("usr1")
    with slurm.training(options=["--until", slurm.file("go"), "--usr1", usr1]) as job:
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()

        def ask(*args):
            argv = ["srun", "--overlap", f"--jobid={number}", "-N1", "-n1", "--relative=2", ddctl, *args]
            return until(lambda: in_time(slurm.cluster.run(argv, user=slurm.user, cwd=slurm.place)), LIMIT, "an answer")

        told = ask("status", "--format=json")
        assert told.rc == 0, told.err
        status = json.loads(told.out)
        assert [(w["rank"], w["node"], w["state"]) for w in status["workers"]] == [
            (r, slurm.cluster.names[r // 2], "running") for r in range(8)]
        assert f".{number}.0." in status["job"] and ask("status", f"--job={number}").rc == 0
        stranger = slurm.cluster.run([ddctl, "status"], node=slurm.cluster.names[0], user="root" if slurm.user != "root" else "alice")
        assert stranger.rc == 1 and "no ddrun job" in stranger.err
        assert ask("signal", "USR1").rc == 0
        until(lambda: slurm.exists("usr1.*.1", 8), LIMIT, lambda: job.err)
        slurm.file("go", "")
        trained(slurm, job.wait(LIMIT))
    assert not slurm.exists("usr1.*.2")


def test_a_thread_of_a_worker_hears_of_a_signal_of_slurm_through_libddrun(slurm):
    worker = slurm.file("worker")
    subprocess.run(["cc", "-I", os.path.join(HERE, "..", "..", "include"), os.path.join(HERE, "programs", "libworker.c"),
                    os.path.join(os.path.dirname(DDRUN), "libddrun.a"), "-o", worker, "-ldl", "-lpthread"], check=True)
    os.chmod(worker, 0o755)
    with slurm.start("--nproc-per-node=2", "--shutdown-timeout=60s", worker, "events") as job:
        until(lambda: job.out.count("ready") == 8, LIMIT, lambda: job.out + job.err)
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        assert slurm.cluster.run(["scancel", "--signal=USR1", f"{number}.0"], user=slurm.user).rc == 0
        until(lambda: job.out.count('"signal"') == 8, LIMIT, lambda: job.out + job.err)
        assert slurm.cluster.run(["scancel", "--signal=TERM", f"{number}.0"], user=slurm.user).rc == 0
        job.wait(LIMIT)
        lines = json_lines(job.out)
    heard = sorted((line["rank"], line["event"], line["text"]) for line in lines if "event" in line)
    assert heard == sorted((r, *e) for r in range(8) for e in ((int(signal.SIGUSR1), "signal"), (int(signal.SIGTERM), "stop")))
    assert [line["saved"] for line in lines if "saved" in line] == [0] * 8


def test_scancel_is_heard_once_by_each_worker(slurm_with):
    slurm = slurm_with(kill_wait=60)  # Slurm must not kill a worker that is slow to report the signal
    program = os.path.join(HERE, "programs", "hear.py")
    with slurm.start("--nproc-per-node=2", "--shutdown-timeout=50s", program, "TERM") as job:
        until(lambda: len(json_lines(job.out.rpartition("\n")[0])) == 8, LIMIT, lambda: job.err)
        number, = slurm.cluster.run(["squeue", "-h", "-o", "%A"]).out.split()
        assert slurm.cluster.run(["scancel", number], user=slurm.user).rc == 0
        done = job.wait(LIMIT)
    assert done.rc != 0
    assert sorted(line["rank"] for line in json_lines(done.out) if "signal" in line) == list(range(8))


MILD = "PartitionName=mild Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=20"


@pytest.mark.parametrize("how", ["preempted", "cancelled"])
def test_a_preempted_job_is_started_again_and_a_cancelled_one_is_not(slurm_with, how):
    slurm = slurm_with(nodes=2, slurm=[MILD])
    begun = slurm.file("begun")
    slurm.file("batch", f"#!/bin/sh\nsrun --ntasks-per-node=1 {DDRUN} --requeue-on=preempt,timeout,node-loss "
                        f"--shutdown-timeout=1s {LIGHT} --begun {begun} --forever\n")
    asked = ["sbatch", "--parsable", "-N2", "--exclusive"]
    number = slurm.cluster.run([*asked, "--requeue", "-p", "mild", "--output=out", "--error=err", "batch"], user=slurm.user,
                               cwd=slurm.place).out.strip()

    def state():
        return slurm.cluster.run(["scontrol", "show", "job", "-o", number]).out

    def said():
        return open(slurm.file("err"), encoding="utf-8").read() if slurm.exists("err") else ""

    until(lambda: slurm.exists("begun.*", 2), LIMIT, state)
    if how == "preempted":
        slurm.cluster.run([*asked, "-p", "high", "--output=/dev/null", "--wrap", "true"], user=slurm.user, cwd=slurm.place)
        until(lambda: " Restarts=1 " in state(), LIMIT, lambda: state() + said())  # the partition's mode alone would cancel it
        assert "did not requeue" not in said()
    else:
        assert slurm.cluster.run(["scancel", number], user=slurm.user).rc == 0
        until(lambda: "JobState=CANCELLED" in state(), LIMIT, lambda: state() + said())
        assert " Restarts=0 " in state() and "requeue" not in said()
    slurm.cluster.run(["scancel", "-u", slurm.user])
    until(lambda: not slurm.cluster.run(["squeue", "-h"]).out, LIMIT, state)


@pytest.mark.skipif(not LONG, reason="Slurm's time limits are whole minutes")
def test_a_job_at_its_time_limit_is_warned_and_started_again(slurm):
    """The limit is a minute; Slurm itself checks it every 30 s."""
    program = os.path.join(HERE, "programs", "hear.py")
    slurm.file("batch", f"#!/bin/sh\nsrun --ntasks-per-node=1 {DDRUN} --requeue-on=timeout --signal-before-end=USR1@40 "
                        f"--shutdown-timeout=1s {program} USR1 TERM\n")
    number = slurm.cluster.run(["sbatch", "--parsable", "-N4", "--time=1", "--requeue", "--output=out", "--error=err", "batch"],
                               user=slurm.user, cwd=slurm.place).out.strip()

    def text(name):
        return open(slurm.file(name), encoding="utf-8").read() if slurm.exists(name) else ""

    until(lambda: "requeue" in text("err"), 2 * LIMIT, lambda: text("err"))
    lines = json_lines(text("out"))
    for name in ("SIGUSR1", "SIGTERM"):
        assert sorted(line["rank"] for line in lines if line.get("signal") == name) == [0, 1, 2, 3], lines
    assert " Restarts=1 " in slurm.cluster.run(["scontrol", "show", "job", "-o", number]).out
    slurm.cluster.run(["scancel", number])
    until(lambda: not slurm.cluster.run(["squeue", "-h"]).out, LIMIT, lambda: text("err"))


def test_pdb_in_a_step(slurm):
    code = "import os; os.environ['RANK'] == '1' and breakpoint(); print('done', flush=True)"
    with slurm.popen(["srun", "-N1", "--pty", DDRUN, "--pty=1", "--nproc-per-node=2", "--no-python", PYTHON, "-c", code],
                     tty=True) as job:
        job.wait_for("(Pdb)")
        job.type(b"p 6 * 7\n")
        job.wait_for("42")
        job.type(b"c\n")
        done = job.wait(LIMIT)
    assert done.rc == 0 and done.out.count("done") == 2, done.out


def test_a_crashed_node_ends_the_job_on_the_others(cluster):
    before = cluster.snapshot()
    slurm = Slurm(cluster)
    with slurm.training("--heartbeat=10s", srun=["-N4", "--no-kill", "--wait=0", "--kill-on-bad-exit=0"]) as job:
        cluster.crash("node3")
        until(lambda: not any(slurm.processes(name, "ddrun") for name in ("node1", "node2", "node4")), LIMIT,
              lambda: job.err)
        assert any("node3" in line for line in ours(job.err)), job.err
        cluster.assert_nothing_left(before)
        done = job.wait(LIMIT)
    assert done.rc != 0


def test_a_restart_takes_all_nodes_along(slurm):
    with slurm.training("--max-restarts=1", options=["--die-rank", "5", "--die-when", slurm.file("now")]) as job:
        first = json_lines(job.out)
        slurm.file("now", "")
        done = job.wait(LIMIT)  # it dies in the second round as well
    assert done.rc == 7, done.err
    second = json_lines(done.out)[8:]
    assert sorted(line["rank"] for line in first) == sorted(line["rank"] for line in second) == list(range(8))
    assert {line["reduced"] for line in second} == {36.0}
    assert not {(line["node"], line["pid"]) for line in first} & {(line["node"], line["pid"]) for line in second}


# --- refusals ---


@pytest.mark.parametrize("srun, args, words", [
    (["-N1", "--ntasks-per-node=4"], [], ["--ntasks-per-node=1"]),
    (["-N4"], ["--nnodes=3"], ["--nnodes", "4"]),
])
def test_a_contradiction_is_one_sentence(slurm, srun, args, words):
    done = slurm.run(*args, LIGHT, srun=srun)
    said = set(ours(done.err))
    assert done.rc == 2 and len(said) == 1, done.err
    assert all(word in done.err for word in words), done.err
    assert json_lines(done.out) == []


EATER = """
import os, time
held = []
while os.environ["RANK"] == "3":
    held.append(bytearray(1 << 20))
time.sleep(1000)
"""


@pytest.mark.skipif(no_memory_limits() is not None, reason=str(no_memory_limits()))
def test_a_rank_that_exceeds_the_memory_of_its_step_is_reported_as_that(slurm_with):
    names = [f"mem{os.getpid()}-{n}" for n in (1, 2)]
    slurm = slurm_with(nodes=2, names=names, memory=True)
    done = slurm.run("--nproc-per-node=2", slurm.file("eat.py", EATER), srun=("-N2", "--mem=300"))
    assert done.rc != 0 and "oom-kill" in done.err, done.err  # Slurm's own count
    assert some_line(done.err, f"rank 3 on {names[1]} was killed by signal 9 (SIGKILL)", "out of memory"), done.err
    assert some_line(done.err, "cause: ", "the memory limit of its cgroup is reached"), done.err
    assert some_line(done.err, "culprit: ", f"rank 3 on {names[1]}"), done.err
    assert some_line(done.err, "tip: ", "--mem"), done.err
