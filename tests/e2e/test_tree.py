"""Nodes that start other nodes, and output that returns over the link: eight nodes in one network namespace of this machine,
whose names do not resolve, and a stand-in for the starter that runs the command here."""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from support import DDRUN, KEY, LIMIT, Job, clean_env, marked, parent, some_line, told, until

NODES = 8
HERE = "10.99.0.1"
HOSTS = f"{HERE},198.51.100.[1-7]"
NETWORK = ["unshare", "-n", "sh", "-c", f'ip link set lo up && ip addr add {HERE}/32 dev lo && exec "$@"', "sh"]
# each row: the starter, and its fan-out
WAYS = {"flat": ("ssh", 0), "tree": ("ssh", 2), "chain": ("ssh", 1), "pbs": ("pbs_tmrsh", 0), "pbs-tree": ("pbs_tmrsh", 3),
        "lsf-tree": ("blaunch", 2), "oar-tree": ("oarsh", 2)}
# what each starter runs after the host's name. The mark identifies this job's processes
RUN = {"ssh": 'exec sh -c "$*"',
       "pbs_tmrsh": 'exec "$@" </dev/null >>"$LOST" 2>&1',
       "blaunch": '[ "$LSB_JOBID" = 7 ] || exit 255\ncd /\nexec "$@" </dev/null',
       "oarsh": '[ "$OAR_JOB_ID" = 7 ] || exit 255\ncd /\n'
                'exec env -i HOME="$HOME" PATH=/usr/bin:/bin OAR_JOB_ID=7 DDRUN_TEST_MARK="$DDRUN_TEST_MARK" sh -c "$*"'}


def can_unshare():
    words = [*NETWORK, "true"]
    return all(map(shutil.which, ("unshare", "ip"))) and subprocess.run(words, capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not can_unshare(), reason="no network namespace can be made here")]


class Nodes:
    """Starts jobs; records which process has started which node."""

    def __init__(self, place):
        self.place = place
        self.env = clean_env(DDRUN_KEY=KEY, STARTS=str(place / "starts"), LOST=str(place / "lost"), LSB_JOBID="7", OAR_JOB_ID="7")
        self.before("ssh", "")

    def before(self, launcher, text):
        """Write the starter. text: shell commands before it starts the node; $host is the node's name."""
        self.starter = self.place / launcher
        self.starter.write_text(f'#!/bin/bash\nhost=$1; shift\necho "$PPID $host $*" >>"$STARTS"\n{text}\n{RUN[launcher]}\n')
        self.starter.chmod(0o755)

    def start(self, way, *args, text="", options=()):
        launcher, fanout = WAYS[way]
        self.before(launcher, text)
        return Job(f"--launcher={launcher}", f"--launch-command={self.starter}", f"--launch-fanout={fanout}", f"--hosts={HOSTS}",
                   "--nproc-per-node=1", "--shutdown-timeout=3s", *options, *args, env=self.env, before=NETWORK)

    def run(self, way, *args, **how):
        with self.start(way, *args, **how) as job:
            job.wait()
            until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))  # agents of the other nodes end by themselves
            job.assert_nothing_left()
            return job

    def starts(self):
        """Return the names of the nodes that each process has started."""
        found = {}
        for line in (self.place / "starts").read_text().splitlines():
            pid, host, *_ = line.split()
            found.setdefault(int(pid), []).append(host)
        return found

    def lost(self):
        return (self.place / "lost").read_text() if (self.place / "lost").exists() else ""


@pytest.fixture
def nodes(tmp_path):
    return Nodes(tmp_path)


def ranks(job):
    return sorted(int(line) for line in job.out.splitlines())


SLEEP = ("sh", "-c", "touch $PLACE/begun.$RANK; sleep 600")


def sleeping(nodes, way, **how):
    nodes.env["PLACE"] = str(nodes.place)
    return nodes.start(way, *SLEEP, **how)


def all_sleep(nodes, job):
    until(lambda: len(list(nodes.place.glob("begun.*"))) == NODES, LIMIT, lambda: job.p.poll())


@pytest.mark.parametrize("way", WAYS)
def test_all_nodes_are_started_and_nobody_starts_too_many(nodes, way):
    job = nodes.run(way, "sh", "-c", "echo $RANK")
    assert job.p.returncode == 0, job.err
    assert ranks(job) == list(range(NODES)) and nodes.lost() == ""
    starts = nodes.starts()
    fanout = WAYS[way][1] or NODES - 1
    assert len(starts[job.p.pid]) == fanout
    assert all(len(names) <= fanout for names in starts.values())
    assert sorted(name for names in starts.values() for name in names) == [f"198.51.100.{i}" for i in range(1, NODES)]


@pytest.mark.parametrize("way", ["lsf-tree", "oar-tree"])
def test_nodes_far_down_a_tree_have_the_shells_variables_and_folder(nodes, way):
    """Neither starter forwards all of them."""
    nodes.env["FROM_SHELL"] = "it's here"
    job = nodes.run(way, "sh", "-c", 'echo "$RANK $FROM_SHELL $(pwd)"')
    assert job.p.returncode == 0, job.err
    assert sorted(job.out.splitlines()) == [f"{r} it's here {os.getcwd()}" for r in range(NODES)]


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""


@pytest.mark.parametrize("way", ["tree", "lsf-tree"])
def test_no_key_in_an_argument_list(nodes, way):
    with sleeping(nodes, way) as job:
        all_sleep(nodes, job)
        words = [words_of(pid) for pid in marked(job.mark)]
        assert len(words) > 2 * NODES and not any(re.search("[0-9a-f]{32}", w) for w in words)
        job.p.terminate()
        assert job.wait() == 143


DEAD_LEAD = '[ "$host" = 198.51.100.1 ] && { echo "no route to $host" >&2; exit 255; }'


def test_a_node_that_cannot_be_started_is_named_and_the_others_end(nodes):
    """No agent reports that it was stopped."""
    job = nodes.run("tree", "true", text=DEAD_LEAD)
    assert job.p.returncode == 1
    assert some_line(job.err, "cannot start ddrun", "198.51.100.1", "code 255") and "no route to 198.51.100.1\n" in job.err
    assert "stopped by" not in job.err


def test_all_nodes_that_cannot_be_started_are_named(nodes, clock):
    """ddrun waits 0.3 s of its clock for further failures, which the test has stopped: starters may take longer."""
    nodes.env |= clock.env
    clock.stop()
    with nodes.start("flat", "true", text="[ ${host##*.} -gt 4 ] && exit 255") as job:
        job.errors("cannot start ddrun on", 3)
        clock.go()
        assert job.wait() == 1
        err = job.errors_seen + job.err
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))
        job.assert_nothing_left()
    assert sorted(re.findall(r"cannot start ddrun on 198.51.100.(\d): --launch-command ", err)) == ["5", "6", "7"]
    assert "stopped by" not in err


@pytest.mark.parametrize("way", ["tree", "lsf-tree", "oar-tree"])
def test_what_a_dead_node_was_to_start_is_started_by_others(nodes, way):
    job = nodes.run(way, "sh", "-c", "echo $RANK", text=DEAD_LEAD, options=("--nnodes=7:8", "--last-call=1s"))
    assert job.p.returncode == 0, job.err
    assert ranks(job) == list(range(NODES - 1))
    assert "cannot start ddrun on 198.51.100.1: --launch-command " in job.err and "continuing without" in job.err


def test_what_only_the_first_node_can_start_it_starts(nodes):
    """As with a key that only the user's first node has."""
    from_elsewhere = 'grep -q launched= /proc/$PPID/cmdline && [ "$host" != 198.51.100.2 ] && exit 255'
    job = nodes.run("tree", "sh", "-c", "echo $RANK", text=from_elsewhere)
    assert job.p.returncode == 0, job.err
    assert ranks(job) == list(range(NODES))
    assert some_line(job.err, "while starting ddrun", "198.51.100.", "255", "retrying")


@pytest.mark.parametrize("options, reached", [((), ["0", "1", "2"]), (("--launcher=none", "--rdzv-timeout=1s"), None)])
def test_horovodrun_takes_ssh_to_its_hosts(nodes, options, reached):
    """As Horovod's own horovodrun does without a scheduler."""
    skip = 'while [ "${host#-}" != "$host" ]; do [ "$host" = -o ] && shift; host=$1; shift; done'
    nodes.before("ssh", skip)
    (nodes.place / "horovodrun").symlink_to(DDRUN)
    network = [*NETWORK[:-2], NETWORK[-2].replace('exec "$@"', f'shift && exec {nodes.place}/horovodrun "$@"'), "sh"]
    env = nodes.env | {"PATH": f"{nodes.place}:{os.environ['PATH']}"}
    with Job("-np", "3", "-H", f"{HERE}:1,198.51.100.1:2", *options, "sh", "-c", "echo $HOROVOD_RANK",
             env=env, before=network) as job:
        assert job.wait() == (0 if reached else 1), job.err
        assert (nodes.place / "starts").exists() == bool(reached)
        assert not reached or sorted(job.out.split()) == reached


@pytest.mark.parametrize("way, sig", [(w, s) for w in ("tree", "pbs-tree") for s in (signal.SIGINT, signal.SIGTERM)] + [
    ("lsf-tree", signal.SIGINT), ("oar-tree", signal.SIGTERM)])
def test_a_signal_ends_all_nodes(nodes, way, sig):
    with sleeping(nodes, way) as job:
        all_sleep(nodes, job)
        job.p.send_signal(sig)
        assert job.wait() == 128 + sig, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("way", ["tree", "pbs-tree"])
def test_a_second_signal_ends_workers_of_all_nodes_at_once(nodes, way):
    """The workers ignore the first signal, and have a long grace period."""
    nodes.env["PLACE"] = str(nodes.place)
    stubborn = "trap 'touch $PLACE/told.$RANK' INT TERM; touch $PLACE/begun.$RANK; while :; do sleep 0.1; done"
    with nodes.start(way, "sh", "-c", stubborn, options=(f"--shutdown-timeout={5 * LIMIT}s",)) as job:
        all_sleep(nodes, job)
        job.p.send_signal(signal.SIGINT)
        until(lambda: len(list(nodes.place.glob("told.*"))) == NODES, LIMIT, lambda: job.p.poll())
        time.sleep(0.3)  # what comes within 250 ms is the same signal
        job.p.send_signal(signal.SIGINT)
        assert job.wait() == 128 + signal.SIGINT, job.err
        job.assert_nothing_left()


def test_a_signal_to_all_processes_of_the_first_node_is_one(nodes, clock):
    """As qdel sends it. The agent receives the signal three times, on a busy machine at some distance; the workers have the
    time that they need."""
    nodes.env |= {"PLACE": str(nodes.place), **clock.env}
    careful = "trap 'touch $PLACE/told.$RANK; until [ -e $PLACE/go ]; do sleep 0.1; done; touch $PLACE/saved.$RANK; exit 0' TERM\n" \
              "touch $PLACE/begun.$RANK; while :; do sleep 0.1; done"
    with nodes.start("pbs", "sh", "-c", careful, options=(f"--shutdown-timeout={5 * LIMIT}s", "--log-level=debug")) as job:
        all_sleep(nodes, job)
        clock.stop()
        (agent,) = [pid for pid in job.agents() if parent(parent(pid)) == job.p.pid]
        for n, pid in enumerate((agent, parent(agent), job.p.pid)):
            os.kill(pid, signal.SIGTERM)
            job.errors("event=signal signal=15", n + 1)
            until(lambda: len(list(nodes.place.glob("told.*"))) == NODES, LIMIT, lambda: job.p.poll())
            clock.advance(0.6)  # what comes within 250 ms is the same signal anyway
        (nodes.place / "go").touch()
        assert job.wait() == 143, job.err
        assert len(list(nodes.place.glob("saved.*"))) == NODES
        job.assert_nothing_left()


def launched(job):
    """Return, for each node, the process that was started there and starts other nodes."""
    found = {}
    for pid in job.processes("ddrun"):
        words = open(f"/proc/{pid}/cmdline", encoding="utf-8").read().split("\0")
        found.setdefault(words[1].split("/")[0].removeprefix("--launched="), []).append(pid)
    return {name: min(pids) for name, pids in found.items()}


@pytest.mark.parametrize("way, who", [(w, s) for w in ("tree", "pbs-tree") for s in ("root", "inner", "outer")] + [
    (w, s) for w in ("lsf-tree", "oar-tree") for s in ("root", "inner")])
def test_killing_one_that_starts_others_leaves_nothing(nodes, way, who):
    with sleeping(nodes, way) as job:
        all_sleep(nodes, job)
        os.kill({"root": job.p.pid, "inner": launched(job)["1"], "outer": launched(job)["7"]}[who], signal.SIGKILL)
        assert job.wait() != 0
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))
        job.assert_nothing_left()


def kill_node(job, name):
    """Kill ddrun's processes on this node; the kernel kills its workers."""
    for pid in job.processes("ddrun"):
        if f"--launched={name}/" in words_of(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("who", ["relay", "node"])
def test_an_elastic_job_goes_on_without_a_lost_node_and_those_below_it(nodes, who):
    """Node 1 has started nodes 2 and 3."""
    nodes.env["PLACE"] = str(nodes.place)
    script = 'touch $PLACE/begun.$RANK.$WORLD_SIZE; [ $WORLD_SIZE -gt 5 ] && exec sleep 600; echo $RANK'
    with nodes.start("tree", "sh", "-c", script, options=("--nnodes=5:8", "--last-call=1s")) as job:
        until(lambda: len(list(nodes.place.glob(f"begun.*.{NODES}"))) == NODES, LIMIT, lambda: job.p.poll())
        if who == "relay":
            os.kill(launched(job)["1"], signal.SIGKILL)
        else:
            kill_node(job, "1")
        assert job.wait() == 0, job.err
        assert ranks(job) == list(range(5))
        assert "lost 198.51.100." in job.err and "stopped by" not in job.err
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))
        job.assert_nothing_left()


@pytest.mark.parametrize("options", [(), ("--max-restarts=1",)])
def test_a_node_that_is_lost_before_all_have_joined_ends_a_job_of_a_fixed_size(nodes, options):
    """The daemon may not know the node yet, and waits for it. Node 3 is started too late for the job to begin."""
    late = '[ "$host" = 198.51.100.3 ] && until [ -e $PLACE/go ]; do sleep 0.1; done'
    nodes.env["PLACE"] = str(nodes.place)
    (nodes.place / "starts").touch()
    with nodes.start("tree", "true", text=late, options=(*options, "--rdzv-timeout=1h")) as job:
        until(lambda: "198.51.100.2" in (nodes.place / "starts").read_text(), LIMIT, lambda: job.p.poll())  # node 1 has connected
        kill_node(job, "1")
        (nodes.place / "go").touch()
        assert job.wait() == 1, job.err
        assert some_line(job.err, "error: ", "lost 198.51.100.")
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))
        job.assert_nothing_left()


@pytest.mark.parametrize("way", ["tree", "pbs-tree"])
def test_lines_come_whole_and_each_where_it_belongs(nodes, way):
    line = "x" * 3000
    job = nodes.run(way, "sh", "-c", f"for i in 1 2 3 4 5 6 7 8 9 10; do for k in 1 2 3 4 5; do echo $RANK {line}; echo err $RANK >&2; done; done")
    assert job.p.returncode == 0
    assert sorted(job.out.splitlines()) == sorted(f"{r} {line}" for r in range(NODES) for _ in range(50))
    assert sorted(told(job.err).splitlines()) == sorted(f"err {r}" for r in range(NODES) for _ in range(50))
    assert nodes.lost() == ""


@pytest.mark.parametrize("way", ["flat", "pbs-tree"])
def test_lines_longer_than_a_pipe_takes_at_once_come_whole(nodes, way):
    """Lines of the starting machine's own node arrive beside those of all other nodes."""
    job = nodes.run(way, "sh", "-c", "line=$(printf %020000d $RANK); for i in 1 2 3 4 5 6 7 8 9 10; do for k in 1 2 3 4 5; do "
                                     "echo $line; echo $line >&2; done; done")
    assert job.p.returncode == 0
    for text in (job.out, job.err):
        assert sorted(text.splitlines()) == [f"{r:020000}" for r in range(NODES) for _ in range(50)]


@pytest.mark.parametrize("way", ["tree", "pbs-tree", "lsf-tree", "oar-tree"])
def test_the_last_words_of_a_worker_that_fails_are_heard(nodes, way):
    job = nodes.run(way, "sh", "-c", "[ $RANK = 6 ] || exec sleep 600; seq 20000; printf 'last words'; exit 9")
    assert job.p.returncode == 9, job.err
    assert job.out == "".join(f"{i}\n" for i in range(1, 20001)) + "last words\n"
    assert "rank 6 on 198.51.100.6 failed" in job.err


# A worker that writes without an end and counts; 3 kB a line, which a pipe takes whole.
ENDLESS = ('line=$(printf %03000d 7); i=0; while [ $i -lt ${MOST:-1000000} ]; do i=$((i + 1)); echo "$RANK $i $line"; '
           'echo $i >$PLACE/count.$RANK; done')
STALL_MOST = 1000  # lines that may lie anywhere between a worker and the reader: pipes, windows, and the console


def counts(nodes):
    """Return the number of lines that each worker has written, or None while a worker writes its number. The worker of the
    first node, where the test reads, may not have begun when the others have."""
    texts = [(nodes.place / f"count.{r}") for r in range(NODES)]
    found = [t.read_text().strip() if t.exists() else "" for t in texts]
    return [int(text or 0) for text in found] if all(found[1:]) else None


def stand_still(nodes, job):
    """Wait until all workers block because nothing reads their output."""
    seen = [None, 0]

    def same():
        now = counts(nodes)
        assert now is None or max(now) < STALL_MOST, now
        seen[1] = seen[1] + 1 if now is not None and now == seen[0] else 0
        seen[0] = now
        return seen[1] >= 20

    until(same, LIMIT, lambda: (seen, job.p.poll()))


@pytest.mark.parametrize("way", ["tree", "pbs-tree"])
def test_workers_wait_for_a_reader_and_nothing_is_lost(nodes, way):
    nodes.env |= {"PLACE": str(nodes.place), "MOST": str(STALL_MOST)}
    with nodes.start(way, "sh", "-c", ENDLESS) as job:
        stand_still(nodes, job)
        with open(f"/proc/{job.p.pid}/status", encoding="utf-8") as f:
            assert int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) < 32 * 1024
        assert job.wait() == 0, job.err
        lines = [line.split() for line in job.out.splitlines()]
        for r in range(NODES):
            mine = [int(words[1]) for words in lines if words[0] == str(r)]
            assert mine == list(range(1, STALL_MOST + 1))
        assert {len(words[2]) for words in lines} == {3000}


@pytest.mark.parametrize("way", ["flat", "pbs-tree"])
def test_a_signal_ends_a_job_whose_output_nobody_reads(nodes, way):
    nodes.env["PLACE"] = str(nodes.place)
    with nodes.start(way, "sh", "-c", ENDLESS) as job:
        stand_still(nodes, job)
        job.p.send_signal(signal.SIGINT)
        assert job.p.wait(LIMIT) == 130
        until(lambda: not marked(job.mark), LIMIT, lambda: marked(job.mark))
