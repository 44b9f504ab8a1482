"""Signals to ddrun on simulated nodes: which workers receive them, how often, and what they end."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from support import Job, clean_env, free_port, json_lines, parent, program, until

NAMES = ["USR1", "USR2"]


class Hearing(Job):
    """A job whose workers print the signals that they receive; entered when all are ready."""

    def __init__(self, *args, nodes=3, per_node=2, names=("USR1", "USR2", "TERM"), **env):
        super().__init__(f"--simulate-nodes={nodes}", f"--nproc-per-node={per_node}", "--shutdown-timeout=1m", *args,
                         program("hear.py"), *names, env=clean_env(**env))
        self.world = nodes * per_node
        self.seen = ""
        self.log = ""

    def __enter__(self):
        super().__enter__()
        self.read_until(lambda: sum("ready" in line for line in self.lines()) == self.world)
        return self

    def said(self, text):
        """Return the number of ddrun's lines so far that contain `text`."""
        while select.select([self.p.stderr], [], [], 0)[0]:
            self.log += os.read(self.p.stderr.fileno(), 65536).decode()
        return sum(text in line for line in self.log.splitlines())

    def lines(self):
        return json_lines(self.seen.rpartition("\n")[0])

    def read_until(self, true):
        while not true():
            self.seen += self.line("\n")

    def heard(self, name):
        return sorted(line["rank"] for line in self.lines() if line.get("signal") == "SIG" + name)

    def hear(self, name, ranks):
        self.read_until(lambda: len(self.heard(name)) >= len(ranks))

    def end(self):
        """End the job and read the rest of its output; return the exit code."""
        self.p.send_signal(signal.SIGTERM)
        code = self.wait()
        self.seen += self.out
        self.assert_nothing_left()
        return code


@pytest.mark.parametrize("to", ["the first process", "the host's agent", "the last agent", "every process"])
@pytest.mark.parametrize("name", NAMES)
def test_an_announcement_reaches_each_worker_once_and_ends_nothing(name, to):
    with Hearing() as job:
        if to == "every process":  # at once: within 250 ms they count as one
            os.killpg(job.p.pid, signal.Signals["SIG" + name])
        else:
            pid = {"the first process": job.p.pid, "the host's agent": min(job.agents()), "the last agent": max(job.agents())}[to]
            os.kill(pid, signal.Signals["SIG" + name])
        job.hear(name, range(6))
        assert job.end() == 143, job.err
        assert job.heard(name) == list(range(6)), job.lines()
        assert job.heard("TERM") == list(range(6))


@pytest.mark.parametrize("name", NAMES)
def test_a_first_process_that_passes_an_announcement_on_late_repeats_nothing(name):
    """Each node has received the signal itself, more than 250 ms before the first process passes its own on."""
    with Hearing() as job:
        job.p.send_signal(signal.SIGSTOP)
        os.killpg(job.p.pid, signal.Signals["SIG" + name])
        job.hear(name, range(6))
        time.sleep(0.3)  # within 250 ms they count as one
        job.p.send_signal(signal.SIGCONT)
        assert job.end() == 143, job.err
        assert job.heard(name) == list(range(6)), job.lines()


def test_a_second_sigint_ends_the_wait_for_nodes_that_come_late(clock):
    """ddrund waits some seconds of its clock, which the test has stopped."""
    args = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--insecure", "true"]
    with Job(*args, env=clean_env(**clock.env)) as job:
        until(lambda: job.processes("ddrund"), say="its ddrund")
        clock.stop()
        job.p.send_signal(signal.SIGINT)
        job.errors("stopped by SIGINT")
        clock.advance(0.3)  # within 250 ms they count as one
        assert job.p.poll() is None
        job.p.send_signal(signal.SIGINT)
        assert job.wait() == 130
        job.assert_nothing_left()


def test_a_node_whose_workers_have_exited_leaves_those_of_others_the_grace_period(tmp_path):
    worker = (f"[ $RANK = 0 ] || exit 0; trap 'until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo saved; exit 0' TERM\n"
              "echo runs; while :; do sleep 0.05; done")
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--shutdown-timeout=1m", "sh", "-c", worker,
             env=clean_env(DDRUN_TRACE="machine")) as job:
        job.line("runs")
        job.errors("node=sim2 from=checking on=checked to=idle")
        job.p.send_signal(signal.SIGTERM)
        job.errors("node=sim2 from=idle on=stop to=idle")  # else it would end the job 2 s later
        (tmp_path / "go").touch()
        assert job.wait() == 143, job.err
        assert "saved" in job.out


def test_two_announcements_are_two():
    with Hearing() as job:
        for n in (1, 2):
            time.sleep(0.3)  # within 250 ms they count as one
            os.kill(job.p.pid, signal.SIGUSR1)
            job.hear("USR1", range(6 * n))
        assert job.end() == 143, job.err
        assert job.heard("USR1") == sorted(list(range(6)) * 2)


def test_a_worker_that_does_not_catch_an_announcement_lives_on():
    with Hearing(DEAF="1,4") as job:
        os.kill(job.p.pid, signal.SIGUSR1)
        job.hear("USR1", [0, 2, 3, 5])
        assert len(job.workers()) == 6
        assert job.end() == 143, job.err
        assert job.heard("USR1") == [0, 2, 3, 5]


def test_an_announcement_before_the_start_ends_nothing():
    with Job("--hosts=127.0.0.1,192.0.2.1", "--node-rank=0", "--insecure", "--rdzv-timeout=60s", program("hear.py")) as job:
        until(job.agents, say="the agent")
        until(lambda: job.processes("ddrund"), say="the daemon")
        for pid in job.processes("ddrun"):
            os.kill(pid, signal.SIGUSR1)
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143, job.err


def as_slurmstepd(sig, pids):
    """Send a signal from a process with the name of slurmstepd, by which ddrun recognizes it."""
    code = f"import os; open('/proc/self/comm', 'w').write('slurmstepd'); [os.kill(p, {int(sig)}) for p in {pids}]; import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as p:
        yield p
        p.stdin.close()


def guardian_and_agent(job, node):
    """Return the pids of a node's guardian and agent; guardians start in the order of the nodes."""
    agent = sorted(job.agents(), key=parent)[node]
    return parent(agent), agent


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_what_slurm_sent_to_its_own_children_is_handed_to_the_workers_of_that_node(name):
    """With cgroups, Slurm signals the guardian of each node alone."""
    with Hearing("--log-level=debug", nodes=2) as job:
        guardians = [guardian_and_agent(job, node)[0] for node in (0, 1)]
        for _ in as_slurmstepd(signal.Signals["SIG" + name], guardians if name == "TERM" else guardians[1:]):
            job.hear(name, range(4) if name == "TERM" else [2, 3])
        assert job.end() == 143, job.err
        assert job.heard(name) == ([2, 3] if name == "USR1" else [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_what_slurm_sent_to_every_process_is_not_sent_again(name):
    with Hearing("--log-level=debug", nodes=2) as job:
        pids = [pid for node in (0, 1) for pid in guardian_and_agent(job, node)] + job.workers()
        for _ in as_slurmstepd(signal.Signals["SIG" + name], pids):
            job.hear(name, range(4))
            if name == "USR1":  # both agents have handled it
                until(lambda: job.said("event=scheduler-signal") == 2)
        assert job.end() == 143, job.err
        assert job.heard(name) == [0, 1, 2, 3]
