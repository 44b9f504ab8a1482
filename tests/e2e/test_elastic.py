"""Jobs on simulated nodes that lose nodes, daemons or workers and continue."""

import contextlib
import os
import select
import signal
import tempfile

import pytest

from support import Job, clean_env, free_port, json_lines, marked, parent, program, some_line, told, until


def kill(pid):
    assert pid > 1  # 0 is this process's own group
    os.kill(pid, signal.SIGKILL)


class Elastic(Job):
    """A job of `nodes` nodes with one worker each; all workers wait for .release()."""

    def __init__(self, nodes, *options, first=None, waits=None, env=None):
        self.dir = tempfile.TemporaryDirectory(prefix="elastic")
        self.go = os.path.join(self.dir.name, "go")
        self.seen = ""
        super().__init__(f"--simulate-nodes={nodes}", "--nproc-per-node=1", "--shutdown-timeout=10s", *options,
                         program("rounds.py"), waits or str(first or nodes), self.go, env=env)
        self.said(first or nodes)

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.dir.cleanup()

    def said(self, n):
        """Return the reports of n workers, from the beginning."""
        while len(json_lines(self.seen)) < n:
            self.seen += self.line("\n")
        return json_lines(self.seen)

    def release(self):
        with open(self.go, "w", encoding="utf-8"):
            pass

    def daemon(self):
        return self.processes("ddrund")[0]

    def host(self):
        return parent(self.daemon())

    def guests(self):
        return [a for a in self.agents() if a != self.host()]

    def finish(self, code=0):
        assert self.wait() == code, self.err
        self.seen += self.out
        self.assert_nothing_left()
        return json_lines(self.seen)


def of_round(said, n, size):
    """Assert that the last n reports are of one round: each rank once, one MASTER_ADDR. Return them."""
    last = said[-n:]
    assert sorted(int(s["RANK"]) for s in last) == list(range(n)), said
    assert {s["WORLD_SIZE"] for s in last} == {str(size)}
    assert len({s["MASTER_ADDR"] for s in last}) == 1
    return last


def test_a_lost_node_costs_an_elastic_job_nothing():
    with Elastic(4, "--nnodes=2:4") as job:
        kill(job.guests()[0])
        last = of_round(job.finish(), 3, 3)
        assert {s["TORCHELASTIC_RESTART_COUNT"] for s in last} == {"0"}
        assert some_line(job.err, "lost", "restarting", "3 nodes")


def test_a_spare_node_takes_the_place_of_a_lost_one():
    with Elastic(3, "--nnodes=2:2", first=2) as job:
        kill([parent(w) for w in job.workers() if parent(w) != job.host()][0])
        of_round(job.said(2 + 2), 2, 2)
        job.release()
        assert len(job.finish()) == 4


@pytest.mark.parametrize("victim", ["agent", "ddrund"])
def test_the_loss_of_the_host_is_survived(victim):
    """If the daemon alone is lost, its node rejoins, unless it takes longer than the others wait for it."""
    with Elastic(4, "--nnodes=2:4", waits="4,3") as job:
        kill(job.host() if victim == "agent" else job.daemon())
        n = int(job.said(4 + 1)[4]["WORLD_SIZE"])
        assert n == 3 or (n, victim) == (4, "ddrund")
        of_round(job.said(4 + n), n, n)
        job.release()
        job.finish()
        assert "takes over" in job.err


def test_a_lost_daemon_costs_a_job_of_fixed_size_one_restart():
    with Elastic(3, "--max-restarts=1") as job:
        kill(job.daemon())
        last = of_round(job.said(3 + 3), 3, 3)
        job.release()
        job.finish()
        assert {s["TORCHELASTIC_RESTART_COUNT"] for s in last} == {"1"}


UNTIL_STOPPED = """
trap 'until [ -e "$1" ]; do sleep 0.1; done; exit 1' TERM
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
echo running
while :; do sleep 1 & wait $!; done
"""


def test_a_host_that_stops_late_can_still_join_the_next_one_by_the_key_in_the_home_directory(tmp_path):
    home, go = tmp_path / "home", tmp_path / "go"
    home.mkdir()
    port = free_port()
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--munge-socket=/nonexistent", "--rdzv-id=late",
            "--max-restarts=1", "--rejoin-timeout=60s", "--shutdown-timeout=120s", "--nproc-per-node=1"]
    with Job(*args, "--node-rank=0", "sh", "-c", UNTIL_STOPPED, "sh", str(go), home=str(home)) as host, \
            Job(*args, "--node-rank=1", "sh", "-c", UNTIL_STOPPED, "sh", "/", home=str(home)) as guest:
        host.line("running")
        guest.line("running")
        kill(host.processes("ddrund")[0])
        said = guest.errors("takes over")
        go.touch()
        assert [host.wait(), guest.wait()] == [0, 0], said + host.err + guest.err
        assert os.listdir(home / ".ddrun") == []


CHIEF_AND_SERVER = """
case $RANK in
0) until [ -e "$1.ready" ]; do sleep 0.1; done; echo chief; exit 0 ;;
esac
trap 'echo stopping; until [ -e "$1" ]; do sleep 0.1; done; exit 0' TERM
: > "$1.ready"
while :; do sleep 1 & wait $!; done
"""


def test_a_daemon_lost_after_the_chief_has_succeeded_does_not_run_it_again(tmp_path):
    go = tmp_path / "go"
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--tf", "--roles=chief:1,ps:1", "--max-restarts=1",
             "--shutdown-timeout=120s", "sh", "-c", CHIEF_AND_SERVER, "sh", str(go)) as job:
        seen = job.line("stopping")
        kill(job.processes("ddrund")[0])
        go.touch()
        assert job.wait() == 0, job.err
        assert (seen + job.out).count("chief") == 1
        assert "takes over" in job.err
        job.assert_nothing_left()


def test_host_after_host_is_lost_and_the_job_goes_on():
    with Elastic(5, "--nnodes=2:5", waits="5,4,3,2") as job:
        for left in (4, 3, 2):
            daemon = job.daemon()
            kill(job.host())
            until(lambda: daemon not in job.processes("ddrund"), say="the end of the daemon")
            size = sum(range(left, 6))
            of_round(job.said(size), left, left)
        job.release()
        job.finish()


def test_one_of_two_without_the_node_that_had_the_daemon_is_no_majority():
    with Elastic(2, "--nnodes=1:2", "--rejoin-timeout=1s", "--shutdown-timeout=1s") as job:
        kill(job.host())
        assert job.wait() != 0
        assert len(json_lines(job.seen + job.out)) == 2
        job.assert_nothing_left()


def test_a_daemon_that_dies_again_and_again_does_not_keep_a_job_for_ever():
    with Elastic(2, "--max-restarts=3", "--rejoin-timeout=1s", "--shutdown-timeout=1s") as job:
        dead = set()
        while job.p.poll() is None:
            for pid in set(job.processes("ddrund")) - dead:
                dead.add(pid)
                try:
                    kill(pid)
                except ProcessLookupError:
                    pass
        assert job.wait() != 0
        assert len(dead) > 1
        job.assert_nothing_left()


def test_fewer_nodes_than_the_least_end_the_job():
    with Elastic(3, "--nnodes=3:4", "--rejoin-timeout=1s") as job:
        kill(job.guests()[0])
        job.finish(1)
        assert some_line(job.err, "lost", "1 s")
        assert some_line(job.err, "error: ", "only 2 nodes are left; the job needs at least 3")


def test_a_minority_does_not_go_on():
    with Elastic(4, "--nnodes=1:4", "--rejoin-timeout=1s") as job:
        guests = job.guests()
        os.kill(job.daemon(), signal.SIGSTOP)  # so that it learns of all three losses at once
        for agent in guests:
            kill(agent)
        until(lambda: not set(guests) & set(job.processes("ddrun")), say="the end of the guests")
        os.kill(job.daemon(), signal.SIGCONT)
        assert job.wait() != 0
        assert len(json_lines(job.seen + job.out)) == 4
        assert some_line(job.err, "1 node is connected, without a majority of the last round's 4 nodes")
        job.assert_nothing_left()


def test_a_node_that_says_nothing_is_lost():
    with Elastic(3, "--nnodes=2:3", "--heartbeat=20s") as job:
        silent = job.guests()[0]
        os.kill(silent, signal.SIGSTOP)
        try:
            of_round(job.said(3 + 2), 2, 2)
        finally:
            os.kill(silent, signal.SIGCONT)
        job.wait()
        assert some_line(job.err, "lost", "heartbeat")
        job.assert_nothing_left()


def test_a_job_that_was_suspended_as_a_whole_goes_on(clock):
    """The clock jumps for all processes, as after SIGSTOP. If that time counted as silence, a node would be lost at once."""
    with Elastic(2, "--heartbeat=20s", env=clean_env(**clock.env)) as job:
        for _ in range(10):
            clock.advance(30)
            assert not select.select([job.p.stdout], [], [], 0.1)[0], "another round"
        job.release()
        assert len(job.finish()) == 2 and told(job.err) == "", job.err


def test_restarts_within_a_time():
    with Elastic(2, "--max-restarts=2/1h") as job:
        for attempt in range(1, 4):
            kill(job.workers()[0])
            if attempt < 3:
                job.said(2 * (attempt + 1))
        assert job.wait() == 137
        job.assert_nothing_left()


def test_worker_after_worker_dies_and_the_job_goes_on():
    with Elastic(2, "--max-restarts=20") as job:
        for attempt in range(1, 21):
            kill(job.workers()[attempt % 2])
            of_round(job.said(2 * (attempt + 1)), 2, 2)
        job.release()
        assert len(job.finish()) == 42


@pytest.mark.parametrize("grow, size", [("now", 3), ("next", 3), ("no", 2)])
def test_a_node_that_comes_late_takes_part_as_grow_says(grow, size, tmp_path):
    go = tmp_path / "go"
    args = ["--nnodes=2:3", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--insecure", "--nproc-per-node=1",
            "--last-call=1s", "--max-restarts=1", f"--grow={grow}", "--log-level=debug"]
    run = (program("rounds.py"), "2,3", str(go))
    with Job(*args, "--node-rank=0", *run) as first, Job(*args, "--node-rank=1", *run) as second:
        first.line("RANK")
        second.line("RANK")
        with Job(*args, "--node-rank=2", *run) as late:
            said = ""
            while "event=join node=" not in said or "index=2" not in said:  # its daemon's, on the first node's stderr
                chunk = os.read(first.p.stderr.fileno(), 65536).decode()
                assert chunk, said
                said += chunk
            if grow != "now":
                kill(second.workers()[0])
            told = first.line("RANK")
            go.touch()
            assert [job.wait() for job in (first, second, late)] == [0, 0, 0], said + first.err + second.err + late.err
            assert {s["WORLD_SIZE"] for s in json_lines(told)} == {str(size)}
            assert len(json_lines(late.out)) == size - 2


class Outside:
    """Nodes of one job on this machine, each started separately, as a user would."""

    def __init__(self, hosts, *options, home):
        self.options = [f"--hosts={hosts}", "--nproc-per-node=1", "--shutdown-timeout=5s", "--last-call=1s",
                        "--munge-socket=/nonexistent", "--log-level=debug", *options]
        self.home = str(home)

    def start(self, rank, program_):
        return Job(f"--node-rank={rank}", *self.options, *program_, home=self.home)


def crash(job):
    """Kill all processes of a node at once: none of them observes the end of another."""
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in marked(job.mark):
            with contextlib.suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, sig)
    job.p.wait()


def test_nodes_started_again_from_outside_join_the_job_that_goes_on(tmp_path):
    """The first node does not know the daemon that replaced its own: it must not start a second job with the other node."""
    go, home = tmp_path / "go", tmp_path / "home"
    home.mkdir()
    nodes = Outside("127.0.7.[1-5]", "--nnodes=2:5", "--grow=now", home=home)
    run = (program("rounds.py"), "5,4,3,2", str(go))
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(nodes.start(rank, run)) for rank in range(5)]
        for job in jobs:
            job.line('"WORLD_SIZE": "5"')
        crash(jobs[0])
        crash(jobs[4])
        for job in jobs[1:4]:
            job.line('"WORLD_SIZE": "3"')
        again = [stack.enter_context(nodes.start(rank, run)) for rank in (0, 4)]
        last = [job.line('"WORLD_SIZE": "5"') for job in (*jobs[1:4], *again)]
        go.touch()
        everybody = (*jobs[1:4], *again)
        assert [job.wait() for job in everybody] == [0] * 5, "".join(job.err for job in everybody)
        assert sorted(int(s["RANK"]) for s in json_lines("".join(last)) if s["WORLD_SIZE"] == "5") == list(range(5))
        assert {s["WORLD_SIZE"] for s in json_lines("".join(last[3:]))} <= {"4", "5"}, "no job of their own before"
        assert "joining the job" in again[0].err
        assert os.listdir(home / ".ddrun") == [], "that of the killed daemon is gone, too"


def test_a_node_asks_the_others_where_the_first_one_cannot_be_found(tmp_path):
    """As after the loss of the first node. All nodes are this machine, so another node's name leads to the daemon."""
    nowhere = "no-such-node-" + "0" * 60  # too long for a DNS query
    nodes = Outside(f"{nowhere},127.0.7.[2-3]", "--nnodes=2:2", home=tmp_path)
    with nodes.start(0, ["echo", "here"]) as first, nodes.start(1, ["echo", "here"]) as second:
        assert [second.wait(), first.wait()] == [0, 0], first.err + second.err
        assert (first.out, second.out) == ("here\n", "here\n")


def test_a_node_that_finds_itself_under_another_name_is_not_refused(tmp_path):
    """A host list may name one machine twice: the first node's search for other daemons then finds its own."""
    with Outside("127.0.7.[1-2]", "--nnodes=1:2", home=tmp_path).start(0, ["echo", "here"]) as first:
        assert first.wait() == 0 and first.out == "here\n", first.err
        loud = [line for line in first.err.splitlines() if ": debug: " not in line]
        assert "event=found-itself" in first.err and not any("refused" in line for line in loud), first.err
        first.assert_nothing_left()
