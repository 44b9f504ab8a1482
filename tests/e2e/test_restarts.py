"""What a failure means for the job: rules for exit codes, blame, progress (docs/restarts.md)."""

import json
import os
import re
import signal
import time

import pytest

from support import DDRUN, clean_env, lines_with, run, some_line, until
from test_config import files  # noqa: F401 (a fixture)
from test_ddctl_job import RANK_IS_READY, Running, ddctl
from test_endtime import played  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

# Prints the nodes of the round. In the first round, once the test releases the workers, rank $2 exits with $3 and the others wait.
FAILS_ONCE = RANK_IS_READY + """
echo "nodes $TORCHELASTIC_RESTART_COUNT $DDRUN_NODES $RANK"
until [ -e "$1" ]; do sleep 0.05; done
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
[ "$RANK" != "$2" ] || exit "$3"
exec sleep 1000
"""


def fails_once(tmp_path, *options, nodes, size, rank, code):
    """Run a job of which `rank` exits with `code` once all nodes have joined. Return it, and {restart: nodes of the round}."""
    command = ("sh", "-c", FAILS_ONCE, "sh", str(tmp_path / "go"), str(rank), str(code))
    with Running(tmp_path, f"--simulate-nodes={nodes}", f"--nnodes={size}:{size}", "--nproc-per-node=1", *options, workers=size,
                 command=command) as job:
        until(lambda: len(job.status()["nodes"]) == nodes)
        job.release()
        job.wait()
        job.assert_nothing_left()
        job.seen += job.out
        return job, dict(re.findall(r"^nodes (\d+) (\S+)", job.seen, re.M))


def test_a_code_to_stop_ends_the_job_without_a_restart():
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=3", "--exit-rules=17=stop", "sh", "-c",
              'echo "round $RANK $TORCHELASTIC_RESTART_COUNT"; [ $RANK = 0 ] || exit 17; exec sleep 1000')
    assert job.p.returncode == 17, job.err
    assert {line.split()[2] for line in lines_with(job.out, "round")} == {"0"}
    assert some_line(job.err, "exit code 17", "without a restart", "--exit-rules")


def test_a_code_without_a_rule_restarts():
    job = run("--nproc-per-node=1", "--standalone", "--max-restarts=2", "--exit-rules=17=stop", "sh", "-c",
              'echo "round $TORCHELASTIC_RESTART_COUNT"; exit 18')
    assert job.p.returncode == 18 and job.out.split() == ["round", "0", "round", "1", "round", "2"], job.err


@pytest.mark.parametrize("rank", [0, 1])
def test_a_spare_takes_the_place_of_a_node_that_moves(tmp_path, rank):
    """Also of the first node, on which the daemon stays."""
    job, rounds = fails_once(tmp_path, "--max-restarts=1", "--exit-rules=16=move", nodes=4, size=3, rank=rank, code=16)
    assert job.p.returncode == 0, job.err
    left = lines_with(job.err, "left sim", "spare node")
    assert len(left) == 1, job.err
    gone = re.search(r"left (sim\d)", left[0]).group(1)
    first, second = (set(re.findall(r"\d", rounds[r])) for r in "01")
    assert rounds["0"].startswith("sim") and len(rounds) == 2
    assert gone in expand(rounds["0"]) and gone not in expand(rounds["1"])
    assert len(expand(rounds["1"])) == 3, (first, second)


def expand(folded):
    """sim[1-2,4] -> {sim1, sim2, sim4}"""
    found = set()
    for part in re.search(r"sim\[?([\d,-]+)", folded).group(1).split(","):
        low, _, high = part.partition("-")
        found |= {f"sim{i}" for i in range(int(low), int(high or low) + 1)}
    return found


def test_without_a_spare_a_node_that_moves_stays(tmp_path):
    job, rounds = fails_once(tmp_path, "--max-restarts=1", "--exit-rules=16=move", nodes=2, size=2, rank=1, code=16)
    assert job.p.returncode == 0, job.err
    assert rounds == {"0": "sim[1-2]", "1": "sim[1-2]"}
    assert some_line(job.err, "sim2 stays", "no spare node")


@pytest.mark.parametrize("rules, options, code, asked", [
    ("75=requeue", [], 75, True),
    ("75=requeue", ["--requeue-on=node-loss", "--max-restarts=3"], 75, True),
    ("75=stop", ["--requeue-on=node-loss"], 75, False),
    ("SIGABRT=requeue", [], 134, True),
    ("93=requeue", [], 93, True),
])
def test_a_code_to_requeue_asks_the_scheduler(played, rules, options, code, asked):  # noqa: F811
    end = "exit $0" if code < 128 else "kill -6 0"
    job = run("--standalone", f"--exit-rules={rules}", *options, "sh", "-c", f"echo round; {end}", str(code),
              env={**played(scontrol="exit 0"), "SLURM_JOB_ID": "77"})
    assert job.p.returncode == code and job.out == "round\n", job.err
    assert played.asked() == ["scontrol requeue 77"] * asked
    assert some_line(job.err, "requeue", "job 77", "--exit-rules") == asked


def test_a_code_not_to_requeue_outweighs_requeue_on(played):  # noqa: F811
    job = run("--standalone", "--signal-before-end=USR1@597", "--requeue-on=timeout", "--exit-rules=5=no-requeue", "sh", "-c",
              "trap 'exit 5' USR1; echo x; while :; do sleep 0.1; done",
              env={**played(scontrol="exit 0"), "SLURM_JOB_ID": "77", "SLURM_JOB_END_TIME": str(int(time.time()) + 600)})
    assert job.p.returncode == 5 and played.asked() == []


def test_a_requeue_without_a_scheduler_is_reported():
    job = run("--standalone", "--exit-rules=75=requeue", "sh", "-c", "exit 75", env=clean_env())
    assert job.p.returncode == 75 and some_line(job.err, "--exit-rules", "ddrun does not run in a job of Slurm or PBS")


@pytest.mark.parametrize("rules", ["17", "17=halt", "0=stop", "300=stop", "20-10=stop", "SIGNOPE=move"])
def test_an_invalid_rule_is_one_sentence(rules):
    job = run(f"--exit-rules={rules}", "true")
    assert job.p.returncode == 2 and len(job.err.splitlines()) <= 2, job.err
    assert some_line(job.err, "error", f"'{rules}'")


def test_a_settings_file_sets_rules(files):  # noqa: F811
    files.user("exit-rules = '17=stop'\n")
    job = files.run("--standalone", "--max-restarts=2", "sh", "-c", "echo round; exit 17")
    assert job.p.returncode == 17 and job.out == "round\n"


# Rank 1 fails in the first two rounds, once the test allows it; the first line of its stderr names the round.
FAILS_TWICE = RANK_IS_READY + """
echo "nodes $TORCHELASTIC_RESTART_COUNT $DDRUN_NODES"
until [ -e "$1.$TORCHELASTIC_RESTART_COUNT" ]; do sleep 0.05; done
[ "$TORCHELASTIC_RESTART_COUNT" -lt 2 ] || exit 0
[ "$RANK" = 1 ] || exec sleep 1000
echo "ValueError: $2 in round $TORCHELASTIC_RESTART_COUNT" >&2
exit 1
"""


def blamed(tmp_path, *options, nodes, text):
    """Run a job of two nodes in which two rounds fail on the second. Return the answers of ddctl blame and ddctl status in the third
    round, the job, and the nodes of each round."""
    command = ("sh", "-c", FAILS_TWICE, "sh", str(tmp_path / "go"), text)
    with Running(tmp_path, f"--simulate-nodes={nodes}", "--nnodes=2:2", "--nproc-per-node=1", "--max-restarts=2", *options, workers=2,
                 command=command) as job:
        until(lambda: len(job.status()["nodes"]) == nodes)
        for restart in (0, 1):
            (tmp_path / f"go.{restart}").touch()
            job.ready(2, restart + 1)
        answer, shown, status = json.loads(job.ctl("blame", "--format=json")), job.ctl("blame"), job.ctl("status")
        (tmp_path / "go.2").touch()
        assert job.wait() == 0, job.err
        job.assert_nothing_left()
        return answer, shown, status, job, dict(re.findall(r"^nodes (\d+) (\S+)", job.seen + job.out, re.M))


def test_a_node_on_which_two_failures_began_is_replaced(tmp_path):
    answer, shown, status, job, rounds = blamed(tmp_path, "--blame-window=1h", nodes=3, text="bad memory")
    (node,) = answer["nodes"]
    assert (node["charges"], answer["window_s"]) == (2, 3600) and "rested" not in node
    assert "bad memory in round 1" in node["text"]
    assert node["left_out"] == "2 failures within --blame-window began there"
    assert some_line(shown, node["name"], "2", f"[left out: {node['left_out']}]", "bad memory") and some_line(status, node["name"], "2 failures")
    assert node["name"] in expand(rounds["0"]) and node["name"] in expand(rounds["1"])
    assert node["name"] not in expand(rounds["2"]) and len(expand(rounds["2"])) == 2
    assert some_line(job.err, f"left {node['name']} out", "--blame-window")


def test_without_a_spare_the_node_stays_and_is_named(tmp_path):
    answer, _, _, job, rounds = blamed(tmp_path, "--blame-window=1h", nodes=2, text="bad memory")
    assert [n["charges"] for n in answer["nodes"]] == [2] and answer["nodes"][0]["left_out"] is None
    assert set(rounds.values()) == {"sim[1-2]"}
    assert some_line(job.err, f"{answer['nodes'][0]['name']} stays", "--blame-window")


def test_the_failure_that_ends_the_job_is_charged_in_the_report(tmp_path):
    """The event is in the timeline, since ddctl cannot ask a job that has ended."""
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", f"--report={tmp_path}/r.json",
              f"--timeline={tmp_path}/t.json", "sh", "-c", '[ "$RANK" = 1 ] || exec sleep 1000; echo "ValueError: boom" >&2; exit 3')
    report = json.loads((tmp_path / "r.json").read_text())
    (charge,) = report["charges"]
    node = report["culprit"]["node"]
    assert (job.p.returncode, charge["node"], charge["charges"]) == (3, node, 2) and "boom" in charge["text"]
    assert some_line(job.err, f"failures charged: 2 to {node}"), job.err
    assert f"  failures charged: 2 to {node}\n" in ddctl("report", f"{tmp_path}/r.json")
    with open(tmp_path / "t.json") as f:
        events = [e["args"] for e in json.load(f) if e["name"] == "charge"]
    assert [(e["round"], e["count"], e["node"]) for e in events] == [(0, 1, node), (1, 2, node)]


def test_without_a_window_failures_are_counted_only(tmp_path):
    answer, _, _, job, rounds = blamed(tmp_path, nodes=3, text="bad memory")
    assert [n["charges"] for n in answer["nodes"]] == [2] and answer["window_s"] == 0
    assert rounds["0"] == rounds["2"] and "--blame-window" not in job.err


def test_an_error_that_reports_the_failure_of_a_peer_is_not_charged(tmp_path):
    answer, shown, _, _, rounds = blamed(tmp_path, "--blame-window=1h", nodes=3, text="Connection reset by peer")
    assert answer["nodes"] == [] and shown == "no failure is charged to a node, and no node is left out\n"
    assert rounds["0"] == rounds["2"]


def test_the_next_daemon_knows_the_charges(tmp_path):
    """The second failure of the node within the window comes under another daemon than the first."""
    command = ("sh", "-c", FAILS_TWICE.replace("-lt 2", "-lt 3"), "sh", str(tmp_path / "go"), "bad memory")
    with Running(tmp_path, "--simulate-nodes=2", "--nnodes=2:2", "--nproc-per-node=1", "--max-restarts=3", "--blame-window=1h", workers=2,
                 command=command) as job:
        (tmp_path / "go.0").touch()
        job.ready(2, 1)
        (before,) = json.loads(job.ctl("blame", "--format=json"))["nodes"]
        os.kill(job.processes("ddrund")[0], signal.SIGKILL)
        job.ready(2, 2)
        (after,) = json.loads(job.ctl("blame", "--format=json"))["nodes"]
        assert (after["name"], after["charges"]) == (before["name"], 1) and "bad memory in round 0" in after["text"]
        assert after["age_s"] >= before["age_s"]
        (tmp_path / "go.2").touch()
        job.ready(2, 3)
        assert [n["charges"] for n in json.loads(job.ctl("blame", "--format=json"))["nodes"]] == [2]
        (tmp_path / "go.3").touch()
        assert job.wait() == 0, job.err
        assert some_line(job.err, f"{before['name']} stays", "--blame-window")
        job.assert_nothing_left()


# Prints the steps of its round, "STEPS;STEPS...", and fails. The last round succeeds.
STEPS = """
echo "round $TORCHELASTIC_RESTART_COUNT"
IFS=';'
set -- $1
shift "$TORCHELASTIC_RESTART_COUNT"
IFS=' '
for step in $1; do echo "train: step $step loss 0.3"; done
[ $# -gt 1 ] || exit 0
exit 3
"""


def steps_of_rounds(steps, *options, script=STEPS, restarts=9, **more):
    """Run one worker. Return the job and the number of rounds."""
    job = run("--standalone", "--nproc-per-node=1", f"--max-restarts={restarts}", *options, "sh", "-c", script, "sh", steps, **more)
    return job, len(lines_with(job.out, "round"))


REGEX = "--progress-regex=step ([0-9]+)"


@pytest.mark.parametrize("steps, options, code, rounds", [
    ("1 2 3;2 3;3;3;5;", [], 93, 4),  # the fourth round is the third restart without a step above 3
    ("1 2 3;2 3;3 4;4;3;5;", [], 0, 6),
    (";;;;;", [], 93, 4),
    ("5;5;6;", ["--progress-restarts=1"], 93, 2),
    ("5;6;7;8;9;", ["--progress-restarts=1"], 0, 5),
    ("5 7000000000000 6;7;8;9;", ["--progress-restarts=1"], 0, 4),  # a wrong number
])
def test_restarts_without_a_new_step_end_the_job(steps, options, code, rounds):
    job, n = steps_of_rounds(steps, REGEX, *options)
    assert (job.p.returncode, n) == (code, rounds), job.err
    sentences = lines_with(job.err, "error: ", "without a new step", "--progress-restarts")
    assert len(sentences) == (code == 93), job.err
    assert code == 0 or some_line(job.err, "last failure", "exit code 3")


def test_the_report_says_that_there_was_no_progress(tmp_path):
    job, _ = steps_of_rounds(";;;", f"--report={tmp_path}/r.json", "--progress-restarts=1", REGEX)
    with open(tmp_path / "r.json") as f:
        report = json.load(f)
    said = "ended the job after 1 restart in a row without a new step; no step was reported (--progress-restarts)"
    assert (job.p.returncode, report["code"], report["verdict"]) == (93, 93, said)
    assert "exit code 3" in report["cause"] and report["culprit"]["rank"] == 0
    shown = ddctl("report", f"{tmp_path}/r.json")
    assert f"error: {said}\n  last failure: rank 0 on " in shown, shown
    job, _ = steps_of_rounds(";;", f"--report={tmp_path}/r.json", restarts=1)
    with open(tmp_path / "r.json") as f:
        assert json.load(f)["verdict"] is None


def test_without_a_way_to_find_steps_only_the_restarts_count():
    job, n = steps_of_rounds(";;;;;;", "--progress-restarts=1", restarts=4)
    assert (job.p.returncode, n) == (3, 5) and "new step" not in job.err


@pytest.mark.parametrize("options", [
    ["--output=raw"], ["--log-dir=logs"], ["--log-dir=logs", "--redirects=3"], ["--label"], ["--log-dir=logs", "--tee=3"],
    ["--log-dir=/dev/null", "--redirects=3"], ["--hang-timeout=1h"]])
def test_steps_are_found_wherever_the_output_goes(options, tmp_path):
    job, _ = steps_of_rounds("1;2;2;2;3;", REGEX, "--progress-restarts=2", *options, cwd=tmp_path)
    assert job.p.returncode == 93 and some_line(job.err, "2 restarts", "highest step is 2"), job.err
    logs = list(tmp_path.glob("logs/*/attempt_1/0/stdout.log"))
    if any("logs" in option for option in options):
        assert "step 2 loss" in logs[0].read_text()


def test_steps_are_found_in_a_file(tmp_path):
    script = 'echo "round $TORCHELASTIC_RESTART_COUNT"; echo $((5 + $TORCHELASTIC_RESTART_COUNT / 2)) > "$1"; exit 3'
    job, n = steps_of_rounds(str(tmp_path / "step"), f"--progress-file={tmp_path}/step", "--progress-restarts=1", script=script)
    assert (job.p.returncode, n) == (93, 2) and some_line(job.err, "highest step is 5"), job.err
    job, n = steps_of_rounds(str(tmp_path / "step"), f"--progress-file={tmp_path}/step", "--progress-restarts=2", script=script, restarts=4)
    assert (job.p.returncode, n) == (3, 5), job.err


@pytest.mark.parametrize("content", [None, "", "five\n", "-1\n", "99999999999999999999\n", "x" * 100000])
def test_a_file_without_a_number_is_no_step(tmp_path, content):
    if content is not None:
        (tmp_path / "step").write_text(content)
    job, n = steps_of_rounds("", f"--progress-file={tmp_path}/step", "--progress-restarts=1", script="echo round; exit 3")
    assert (job.p.returncode, n) == (93, 2), job.err


def test_status_and_metrics_show_the_step(tmp_path):
    script = RANK_IS_READY + 'echo "step 1200"; until [ -e "$1" ]; do sleep 0.05; done'
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", REGEX, script=script, workers=2) as job:
        until(lambda: job.status().get("step") == 1200)
        assert job.status()["restarts_without_step"] == 0
        assert "step 1200" in job.ctl("status").splitlines()[0]
        assert "ddrun_step 1200\n" in job.ctl("metrics")
        job.finish()


@pytest.mark.parametrize("regex", ["step [0-9]+", "(", "([0-9]"])
def test_an_invalid_expression_is_one_sentence(regex):
    job = run(f"--progress-regex={regex}", "true")
    assert job.p.returncode == 2 and len(job.err.splitlines()) <= 2, job.err
    assert some_line(job.err, "error", "regular expression", f"'{regex}'")
