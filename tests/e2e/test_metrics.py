"""--metrics and ddctl metrics: the samples, how real parsers read them, and that no temporary file is left. The profile of the
store: --profile and ddctl profile."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess

import pytest

from support import LIMIT, PYTHON, answered, clean_env, has_module, parent, run, until
from test_ddctl_job import DDCTL, Running

GRAFANA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib", "grafana")
needs_parser = pytest.mark.skipif(not has_module(PYTHON, "prometheus_client"), reason="no prometheus-client in DDRUN_PYTHON's environment")
FAILS_ONCE = '[ "$TORCHELASTIC_RESTART_COUNT$RANK" != 03 ] || exit 3'

# Prints each sample that PyPI's strict OpenMetrics parser finds; the parser of Prometheus' text format must find the same.
PARSE = """
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
text = sys.stdin.read()
def samples(parse):
    return [(s.name, tuple(s.labels.items()), s.value) for family in parse(text) for s in family.samples]
assert samples(openmetrics) == samples(prometheus)
families = list(openmetrics(text))
assert all(f.documentation for f in families)
print({(s.name, *s.labels.values()): s.value for f in families for s in f.samples})
"""


def parse(text):
    p = subprocess.run([PYTHON, "-c", PARSE], input=text, env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 0, p.stderr + text
    return eval(p.stdout)  # noqa: S307


def info(samples):
    (_, *labels), = (k for k in samples if k[0] == "ddrun_job_info")
    return labels


def whole_text(path):
    """Return the file's text once it exists. The last line shows that no text is read in part."""
    until(path.exists, say=str(path))
    text = path.read_text()
    assert text.endswith("# EOF\n")
    return text


@needs_parser
def test_file_of_one_node_states_the_result_at_the_end(tmp_path):
    path = tmp_path / "job.prom"
    job = run("--nproc-per-node=2", f"--metrics={path}", "sh", "-c", 'exit "$RANK"')
    assert job.p.returncode == 1, job.err
    assert os.listdir(tmp_path) == ["job.prom"], "a draft was left"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    m = parse(path.read_text())
    assert info(m)[0].startswith("local.") and m[("ddrun_job_state", "finished")] == 1 and m[("ddrun_job_state", "running")] == 0
    assert m[("ddrun_job_exit_code",)] == 1 and m[("ddrun_failed_workers_total",)] == 1
    assert (m[("ddrun_rounds_total",)], m[("ddrun_restarts_total",)], m[("ddrun_lost_nodes_total",)]) == (1, 0, 0)
    assert m[("ddrun_nodes", "ended")] == 1 and m[("ddrun_workers", "ended")] == 2
    assert 0 < m[("ddrun_startup_seconds",)] and ("ddrun_recovery_seconds",) not in m
    assert ("ddrun_notify_queued_events",) not in m
    assert m[("ddrun_daemon_resident_memory_bytes",)] > 1 << 20


@needs_parser
def test_restart_on_two_nodes_is_counted_and_timed(tmp_path):
    path = tmp_path / "job.prom"
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=2", f"--metrics={path}", "sh", "-c", FAILS_ONCE)
    assert job.p.returncode == 0, job.err
    assert os.listdir(tmp_path) == ["job.prom"]
    m = parse(path.read_text())
    assert (m[("ddrun_rounds_total",)], m[("ddrun_restarts_total",)], m[("ddrun_max_restarts",)]) == (2, 1, 2)
    assert m[("ddrun_failed_workers_total",)] == 1 and m[("ddrun_job_exit_code",)] == 0
    assert m[("ddrun_startup_seconds",)] > 0 and m[("ddrun_recovery_seconds",)] > 0 and m[("ddrun_running_seconds_total",)] > 0
    assert m[("ddrun_nodes", "ended")] == 2 and m[("ddrun_workers", "ended")] == 4


# Each rank: two SETs of its key, a GET, a PING, then a WAIT that never ends.
STORE_WORKER = f"""
import os, socket, sys
rank = os.environ["RANK"].encode()
key, value = b"k" + rank, b"v"
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
from c10d import VALIDATE, get, ping, set_, wait
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.sendall(VALIDATE + ping() + set_(key, value) + set_(key, value) + get(key) + wait(b"never"))
got = b""
while len(got) < 4 + 8 + 1:
    got += s.recv(100)
print("ready", os.environ["TORCHELASTIC_RUN_ID"], os.environ["RANK"], 0, flush=True)
s.recv(1)
"""


@needs_parser
def test_ddctl_metrics_shows_the_running_job_and_its_store(tmp_path):
    worker = (PYTHON, "-c", STORE_WORKER)
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", workers=2, command=worker) as job:
        m = until(lambda: (m := parse(job.ctl("metrics")))[("ddrun_job_state", "running")] == 1 and m, say="a running job")
        assert info(m)[0] == f"simulated.{job.name}" and info(m)[2] == "sim1"
        until(lambda: parse(job.ctl("metrics"))[("ddrun_nodes", "running")] == 2, say="two running nodes")
        m = parse(job.ctl("metrics"))
        operation = "ddrun_store_operations_total"
        assert (m[(operation, "set")], m[(operation, "get")], m[(operation, "ping")], m[(operation, "wait")]) == (4, 2, 2, 2)
        assert m[("ddrun_store_keys",)] == 2 and m[("ddrun_store_connections",)] == 2 and m[("ddrun_store_waiting_requests",)] == 2
        assert m[("ddrun_store_memory_bytes",)] > 0 and m[("ddrun_workers", "running")] == 2
        assert ("ddrun_job_exit_code",) not in m
        os.kill(job.workers()[0], signal.SIGTERM)  # ends the job
        job.wait()
        job.assert_nothing_left()


@needs_parser
@pytest.mark.parametrize("victim", ["agent", "ddrund"])
def test_no_draft_is_left_after_sigkill(tmp_path, victim):
    place = tmp_path / "metrics"
    place.mkdir()
    path = place / "job.prom"
    with Running(tmp_path, f"--metrics={path}", "--nproc-per-node=1") as job:
        text = whole_text(path)
        pid, = job.agents() if victim == "agent" else job.processes("ddrund")
        os.kill(pid, signal.SIGKILL)
        job.wait()
        job.assert_nothing_left()
        assert os.listdir(place) == ["job.prom"]
        assert info(parse(text)) == info(parse(path.read_text()))


@needs_parser
def test_the_next_daemon_continues_the_file(tmp_path):
    path = tmp_path / "job.prom"
    with Running(tmp_path, "--simulate-nodes=3", "--nnodes=2:3", f"--metrics={path}", workers=3) as job:
        daemon, = job.processes("ddrund")
        os.kill(parent(daemon), signal.SIGKILL)
        job.ready(5)
        job.finish()
        assert sorted(f for f in os.listdir(tmp_path) if f != "go") == ["job.prom"]
    m = parse(path.read_text())
    assert info(m)[2] in ("sim2", "sim3") and m[("ddrun_nodes", "ended")] == 2 and m[("ddrun_job_exit_code",)] == 0
    assert m[("ddrun_rounds_total",)] == 2 and m[("ddrun_restarts_total",)] == 0
    assert m[("ddrun_recovery_seconds",)] > 0 and ("ddrun_startup_seconds",) not in m


def test_file_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path / "none" / "x", "No such file or directory"), (tmp_path, "Is a directory"),
                      (tmp_path / "file" / "x", "Not a directory"), ("", "No such file or directory")):
        job = run("--simulate-nodes=2", f"--metrics={path}", "echo", "started")
        assert job.p.returncode == 2 and "started" not in job.out
        assert [line for line in job.err.splitlines() if "error:" in line] == [
            f"ddrun[sim1]: error: --metrics: cannot write '{path}': {why}"], job.err


def test_a_job_outlives_the_directory_of_its_metrics(tmp_path):
    place = tmp_path / "metrics"
    place.mkdir()
    with Running(tmp_path, f"--metrics={place / 'job.prom'}", "--nproc-per-node=1") as job:
        whole_text(place / "job.prom")
        shutil.rmtree(place)
        job.finish()
        assert f"warning: --metrics: cannot write '{place / 'job.prom'}': No such file or directory" in job.err


def test_a_job_ends_although_its_metrics_cannot_be_written_in_time(tmp_path):
    path = tmp_path / "job.prom"
    with Running(tmp_path, f"--metrics={path}", "--nproc-per-node=1") as job:
        whole_text(path)
        writer, = job.processes("ddrun-metrics")
        os.kill(writer, signal.SIGSTOP)  # as if its file system hung
        job.finish()
        assert f"warning: --metrics: cannot write '{path}': the file system does not respond" in job.err


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


@needs_promtool
def test_prometheus_reads_the_file(tmp_path):
    path = tmp_path / "job.prom"
    assert run(f"--metrics={path}", "true").p.returncode == 0
    with open(path, encoding="ascii") as f:
        p = subprocess.run(["promtool", "check", "metrics"], stdin=f, capture_output=True, text=True, timeout=LIMIT, check=False)
    # 3: remarks. promtool knows counters as NAME_total only, and finds the help of NAME.
    assert p.returncode in (0, 3), p.stderr
    assert all(line.endswith("_total no help text") for line in p.stderr.splitlines()), p.stderr


def promtool(*args, cwd=GRAFANA):
    p = subprocess.run(["promtool", *args], cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 0, p.stdout + p.stderr


@needs_promtool
def test_example_alerts_fire_when_they_should():
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts-test.yml")


@needs_promtool
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path):
    with open(os.path.join(GRAFANA, "ddrun.json"), encoding="utf-8") as f:
        queries = [target["expr"] for panel in json.load(f)["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    rules = [{"record": f"query:{i}", "expr": q.replace("$__rate_interval", "1m").replace("$instance", "n1")} for i, q in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", "rules.yml", cwd=tmp_path)


def operations(job):
    return {o["operation"]: o for o in json.loads(job.ctl("profile", "--format=json"))["operations"]}


@pytest.mark.parametrize("measured", [True, False], ids=["with --profile", "without"])
def test_profile_shows_operations_and_sizes_and_if_asked_times_and_keys(tmp_path, measured):
    options = ["--profile"] if measured else []
    with Running(tmp_path, "--simulate-nodes=2", *options, workers=2, command=(PYTHON, "-c", STORE_WORKER)) as job:
        until(lambda: operations(job).get("WAIT", {}).get("count") == 2, say="two waits")
        found = operations(job)
        assert {name: o["count"] for name, o in found.items()} == {"PING": 2, "SET": 4, "GET": 2, "WAIT": 2}
        assert found["SET"]["bytes_in"] == 4 * (1 + 8 + 2 + 8 + 1) and found["GET"]["bytes_out"] == 2 * (8 + 1)
        profile = json.loads(job.ctl("profile", "--format=json"))
        assert profile["measured"] == measured and ("keys" in profile) == measured and ("service_ns" in found["SET"]) == measured
        assert profile["connections"] == {"open": 2, "opened": 2, "refused": 0}
        if measured:
            assert {k["key"]: k["count"] for k in profile["keys"]} == {"k0": 3, "k1": 3, "never": 2}
        p = answered([DDCTL, "profile", f"--job={job.name}"])
        assert p.returncode == 0, p.stderr
        assert re.search(r"^SET +4 +80 +0", p.stdout, re.M) and ("MEAN RUN, us" in p.stdout) == measured
        assert ("tip: a job that is started with 'ddrun --profile' also measures times" in p.stderr) != measured
        os.kill(job.workers()[0], signal.SIGTERM)  # ends the job
        job.wait()
        table = job.err.partition("ddrun[sim1]: profile of the store:\n")[2]
        assert bool(re.search(r"^WAIT +2 ", table, re.M) and re.search(r" 3  k0$", table, re.M)) == measured
        assert job.err.count("BYTES IN") == measured, "only the daemon's node prints it"
        job.assert_nothing_left()
