"""docs/json.md and the JSON documents agree: members, types, and which of them are always there."""

import json
import os
import re
import socket
import subprocess

import pytest

from support import BUILD, DDRUN, HERE, LIMIT, PYTHON, clean_env, run, until
from test_ddctl_job import DDCTL, Running, ddctl

PAGE = os.path.join(HERE, "..", "..", "docs", "json.md")
OPEN = {"status", "events"}  # options of a job add members that their own pages may describe
TYPES = {str: "text", bool: "boolean", int: "integer", float: "number", dict: "object", type(None): "null"}

# Each worker uses the store and waits for a key; rank 1 fails in the first round, once all have printed their line.
WORKER = f"""
import os, socket, sys
rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.path.insert(0, {HERE!r})
from c10d import VALIDATE, get, set_, wait
key = b"k" + rank.encode()
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
print("ready", os.environ["TORCHELASTIC_RUN_ID"], rank, restart, flush=True)
s.sendall(VALIDATE + set_(key, b"v") + get(key))
got = b""
while len(got) < 8 + 1:
    got += s.recv(100)
s.sendall(wait(b"k0", b"k1", b"k2", b"k3") if (rank, restart) == ("1", "0") else wait(b"never"))
s.recv(1)
raise SystemExit(7)
"""


def documented():
    """Return {document: {path: (types, optional)}} from the page."""
    with open(PAGE, encoding="utf-8") as f:
        sections = re.split(r"^## ", f.read(), flags=re.M)[1:]
    found = {}
    for section in sections:
        name = section.splitlines()[0]
        rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+?)( \(optional\))? \|", section, re.M)
        if name != "Rules":
            found[name] = {path: (set(types.split(" or ")), optional != "") for path, types, optional in rows}
    return found


DOCUMENTED = documented()


def members(value, path, known, found):
    """Add the types of all members below value to found; what the page calls a map or an object has none."""
    inside = known.get(path, ({}, False))[0]
    if isinstance(value, list):
        found.setdefault(path + "[]*", set())
        for element in value:
            members(element, path + "[]", known, found)
    elif isinstance(value, dict) and "map of text" in inside:
        assert all(isinstance(text, str) for text in value.values()), path
        found.setdefault(path, set()).add("map of text")
    elif isinstance(value, dict) and "object" not in inside:
        for name, member in value.items():
            members(member, f"{path}.{name}" if path else name, known, found)
    else:
        found.setdefault(path, set()).add(TYPES[type(value)])


def compare(name, *documents):
    """Check these documents of that name against the page."""
    known, found = DOCUMENTED[name], {}
    for document in documents:
        members(document, "", known, found)
    lists = {path[:-1] for path in found if path.endswith("[]*")}
    found = {path: types for path, types in found.items() if not path.endswith("[]*")}
    unknown = sorted(set(found) - set(known)) if name not in OPEN else []
    found = {path: types for path, types in found.items() if path in known}
    assert not unknown, f"docs/json.md, section '{name}', lacks rows for {unknown}"
    for path, types in found.items():
        allowed = known[path][0] | ({"integer"} if "number" in known[path][0] else set())
        assert types <= allowed, f"docs/json.md, section '{name}': {path} is {types}"
    filled = {path.split(".")[0] for path in found}
    for path, (_, optional) in known.items():
        empty = any(path.startswith(place) and not any(f.startswith(place) for f in found) for place in lists)
        assert optional or empty or path in found, f"docs/json.md, section '{name}': there is no {path} in {sorted(filled)}"


def output(*command, cwd=None, code=0, **env):
    p = subprocess.run(command, env=clean_env(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False,
                       cwd=cwd)
    assert p.returncode == code, p.stderr
    return p.stdout


def test_settings(tmp_path):
    shown = json.loads(output(DDRUN, "--show-config=json", "--env=A=\N{GREEK SMALL LETTER ALPHA}", "true", cwd=tmp_path, DDRUN_ROLE="r"))
    compare("settings", shown, json.loads(output(DDCTL, "status", "--show-config=json")))
    rows = {row["name"]: row for row in shown["options"]}
    assert rows["env"]["value"] == "A=\N{GREEK SMALL LETTER ALPHA}" and rows["env"]["source"] == "command line"
    assert (rows["role"]["value"], rows["role"]["place"]) == ("r", "DDRUN_ROLE") and rows["label"]["value"] == "no"
    plain = output(DDRUN, "--show-config", "true", cwd=tmp_path).splitlines()
    assert len(plain) == len(shown["options"]), "the same rows as text"


def test_dry_run_has_what_the_text_has():
    args = ("--simulate-nodes=2", "--nproc-per-node=2", "--rdzv-id=7", "sh", "-c", "echo 'a b'")
    lines = [json.loads(line) for line in output(DDRUN, "--dry-run=json", *args, PMI_RANK="0").splitlines()]
    compare("dry run", *lines)
    assert [node["node"] for node in lines] == ["sim1", "sim2"] and lines[0]["nodes"] == "sim[1-2]"
    workers = [worker for node in lines for worker in node["workers"]]
    assert [worker["rank"] for worker in workers] == [0, 1, 2, 3]
    assert all(worker["argv"][-1] == "echo 'a b'" and worker["environment"]["WORLD_SIZE"] == "4" for worker in workers)
    assert all(worker["environment"]["RANK"] == str(worker["rank"]) for worker in workers)
    text = output(DDRUN, "--dry-run", *args, PMI_RANK="0")
    assert text.count("\n  unset ") == sum(len(worker["unset"]) for worker in workers) >= 4


def test_dry_run_starts_nothing_on_a_spare_node():
    args = ("--nnodes=2:2", "--simulate-nodes=3", "--nproc-per-node=1", "true")
    nodes = [json.loads(line) for line in output(DDRUN, "--dry-run=json", *args).splitlines()]
    assert [(node["node_rank"], node["nodes"], node["world_size"], len(node["workers"])) for node in nodes] == [
        (0, "sim[1-2]", 2, 1), (1, "sim[1-2]", 2, 1), (-1, "sim[1-2]", 2, 0)]
    text = output(DDRUN, "--dry-run", *args)
    assert text.count("\n  WORLD_SIZE=2\n") == 2 and text.count("spare nodes: 1") == 2 and "sim3 would be a spare node" in text


def test_dry_run_names_what_would_be_imported(tmp_path):
    (tmp_path / "train.py").write_text("")
    node = json.loads(output(DDRUN, "--dry-run=json", "--warm=json", "--nproc-per-node=1", "train.py", cwd=tmp_path))
    compare("dry run", node)
    assert "imports json" in node["warm"]


def test_dry_run_of_a_start_precedes_the_nodes_by_a_launch():
    lines = output(DDRUN, "--dry-run=json", "--launcher=ssh", f"--hosts={socket.gethostname()},198.51.100.1", "--nproc-per-node=1", "true")
    launch, node = (json.loads(line) for line in lines.splitlines())
    assert set(launch) == {"version", "document", "starter", "starts", "nodes"}
    assert (launch["document"], launch["starter"], launch["starts"]) == ("launch", "ssh", 1) and node["document"] == "node"


def test_hosts():
    compare("hosts", json.loads(output(DDCTL, "hosts", "--format=json", "n[1-3]")))


def test_doctor():
    document = json.loads(output("sh", "-c", f"ulimit -n 64; exec {BUILD}/ddctl doctor --format=json", code=1))  # 1: it found something
    compare("doctor", document)
    assert document["findings"], "too few file descriptors are a finding"


def test_doctor_with_a_measured_network(tmp_path):
    """Three nodes, which are addresses of this machine."""
    shell = tmp_path / "ssh"
    shell.write_text('#!/bin/sh\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    done = subprocess.run([DDCTL, "doctor", "--net", "--format=json", "--hosts=127.0.0.1,127.0.0.2,127.0.0.3", "--node-rank=0", "--launcher=ssh",
                           f"--launch-command={shell}", "--insecure", f"--limit={LIMIT}s"], env=clean_env(), capture_output=True, text=True,
                          timeout=2 * LIMIT, check=False)
    document = json.loads(done.stdout)
    compare("doctor", document)
    pairs = document["network"]["pairs"]
    assert [(pair["from"], pair["to"]) for pair in pairs] == [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.3"), ("127.0.0.3", "127.0.0.1")]
    assert all(pair["error"] == "" and pair["latency_ns"] > 0 and pair["bytes_per_second"] > 0 for pair in pairs), done.stderr
    assert document["network"]["latency_ns"] in {pair["latency_ns"] for pair in pairs}


def test_documents_of_a_running_job_and_its_timeline(tmp_path):
    timeline = tmp_path / "timeline.json"
    options = ("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1", "--profile", f"--timeline={timeline}")
    with Running(tmp_path, *options, workers=4, command=(PYTHON, "-c", WORKER)) as job:
        job.ready(4, restart=1)
        until(lambda: job.status()["state"] == "running" and job.status()["round"] == 1, say="the second round")
        compare("status", job.status())
        compare("top", json.loads(job.ctl("top", "--format=json")))
        jobs = json.loads(ddctl("jobs", "--format=json"))  # of all tests that run beside this one
        compare("jobs", {**jobs, "jobs": [one for one in jobs["jobs"] if one["job"].endswith(job.name)]})
        events = [json.loads(line) for line in job.ctl("events", "--format=json").splitlines()]
        compare("events", *events)
        assert {"join", "round", "started", "exit"} <= {event["event"] for event in events}
        metrics = json.loads(job.ctl("metrics", "--format=json"))
        compare("metrics", metrics)
        assert {family["name"] for family in metrics["metrics"]} == set(re.findall(r"^# TYPE (\S+)", job.ctl("metrics"), re.M))
        compare("profile", json.loads(job.ctl("profile", "--format=json")))
        compare("blame", json.loads(job.ctl("blame", "--format=json")))
        compare("keys", json.loads(job.ctl("kv", "--format=json", "list")))
        os.kill(job.workers()[0], 9)
        assert job.wait() == 137
        job.assert_nothing_left()
    document = json.loads(output(DDCTL, "timeline", "--format=json", str(timeline)))
    compare("timeline", document)
    assert document["code"] == 137 and document["rounds"][0]["failed_rank"] == 1 and len(document["rounds"]) == 2
    assert [phase["phase"] for phase in document["rounds"][0]["phases"]] == ["stop", "restart"]


# Rank 1 fails while the others wait for it: rank 0 for a process that it has started.
WAITS = """
import os, subprocess, sys, time
rank = os.environ["RANK"]
print("ready", os.environ["TORCHELASTIC_RUN_ID"], rank, 0, flush=True)
if rank == "0":
    subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)"])
while rank != "1" or not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
raise ValueError("boom")
"""


def test_report_and_stacks_of_a_job_that_fails(tmp_path):
    go, file = tmp_path / "go", tmp_path / "report.json"
    program = tmp_path / "waits.py"
    program.write_text(WAITS)
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", "--stacks=auto", f"--report={file}", workers=4, command=(PYTHON, program, go)) as job:
        shown = until(lambda: (s := json.loads(job.ctl("stacks", "--format=json")))["children"] and s, say="the process of rank 0")
        compare("stacks", shown)
        job.finish(code=1)
    report = json.loads(file.read_text())
    assert report["culprit"]["rank"] == 1 and report["charges"] and report["stacks"]["groups"]
    compare("report", report)
    compare("stacks", {"version": 1, **report["stacks"]})


@pytest.mark.parametrize("node, options", [("ok", ()), ("unfit", ("--health-check=false",))])
def test_report_without_a_failed_worker(tmp_path, node, options):
    file = tmp_path / "report.json"
    run("--simulate-nodes=2", f"--report={file}", *options, "true")
    report = json.loads(file.read_text())
    assert (report["culprit"] is None) == (node == "ok") and report["failures"] == []
    compare("report", report)


@pytest.mark.parametrize("args", [("--dry-run=xml", "true"), ("--show-config=yaml", "true")])
def test_an_unknown_form_is_refused(args):
    job = run(*args)
    assert job.p.returncode == 2 and job.out == "" and "expected text or json" in job.err


def test_every_document_on_the_page_is_compared():
    with open(__file__, encoding="utf-8") as f:
        assert set(re.findall(r'compare\("([a-z ]+)"', f.read())) == set(DOCUMENTED)
