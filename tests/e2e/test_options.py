"""The options of ddrun and ddrund, as a user observes them."""

import json
import os
import re
import socket
import struct
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import BUILD, DDRUN, LIMIT, Job, clean_env, json_lines, program, run, some_line

DDRUND = os.path.join(BUILD, "ddrund")
SCRIPT = program("show_env.py")


def ask(*args, env=None, tool=DDRUN):
    return subprocess.run([tool, *args], env=env or clean_env(), capture_output=True, text=True, timeout=LIMIT,
                          stdin=subprocess.DEVNULL)


def config(*args, **env):
    """Return {option: (value, source)} of --show-config."""
    shown = ask("--show-config", *args, env=clean_env(**env))
    assert shown.returncode == 0, shown.stderr
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    return {name: (value, source) for name, value, source in rows}


def rows(tool):
    return json.loads(ask("--dump-options=json", tool=tool).stdout)["options"]


@pytest.mark.parametrize("tool", [DDRUN, DDRUND])
def test_help_names_every_option_in_80_columns(tool):
    shown = ask("--help=all", tool=tool)
    assert shown.returncode == 0 and shown.stderr == ""
    assert max(map(len, shown.stdout.splitlines())) <= 80
    for row in rows(tool):
        assert row["hidden"] or f"--{row['name']}" in shown.stdout


def named(text):
    """Return the options that begin a line."""
    return set(re.findall(r"^  (?:-\w,|   ) --([a-z-]+)", text, re.M))


def test_help_is_short_and_says_how_to_see_the_rest():
    shown = ask("--help").stdout
    assert len(shown.splitlines()) <= 60 and "ddrun --help=all" in shown
    assert {"nproc-per-node", "nnodes", "hosts", "max-restarts", "hang-timeout", "log-dir", "report", "help"} <= named(shown)
    assert "'ddctl' inspects running jobs" in shown
    assert len(named(shown)) < len(named(ask("--help=all").stdout)) / 2
    assert ask("-h").stdout == shown


@pytest.mark.parametrize("word, options, text", [
    ("output", {"label", "tee", "redirects"}, "0:1,1:3"),
    ("restarts", {"max-restarts"}, "3/1h"),
    ("--output", {"output"}, "lines"),
    ("tee", {"tee"}, "3 both"),
    ("--tee", {"tee"}, "3 both"),
])
def test_help_about_a_word(word, options, text):
    shown = ask(f"--help={word}")
    assert shown.returncode == 0 and options <= named(shown.stdout) and "nnodes" not in named(shown.stdout)
    assert text in shown.stdout and max(map(len, shown.stdout.splitlines())) <= 80


def test_help_about_nothing_that_is_there():
    shown = ask("--help=nonsense")
    assert shown.returncode == 2 and shown.stdout == ""
    assert shown.stderr == "ddrun: error: no option or topic 'nonsense'\n  tip: 'ddrun --help=all' lists all options\n"


@pytest.mark.parametrize("word, topic", [("ppn", "nproc-per-node"), ("restrat", "restarts"), ("Netwrok", "network")])
def test_help_about_an_unknown_word_suggests_a_near_one(word, topic):
    shown = ask(f"--help={word}")
    assert shown.returncode == 2 and f"\n  tip: did you mean 'ddrun --help={topic}'?\n" in shown.stderr
    assert ask(f"--help={topic}").returncode == 0


def test_help_about_a_command_names_its_own_help():
    shown = ask("--help=stacks", tool=os.path.join(BUILD, "ddctl"))
    assert shown.returncode == 2 and "\n  tip: 'ddctl stacks --help' shows the options of this command\n" in shown.stderr


@pytest.mark.parametrize("tool", [DDRUN, DDRUND])
def test_version_is_one_line(tool):
    shown = ask("--version", tool=tool)
    name, number = shown.stdout.split()
    assert name == os.path.basename(tool) and number[0].isdigit() and shown.returncode == 0


def test_show_config_says_where_each_value_comes_from():
    shown = config("--nproc-per-node", "3", "-m", SCRIPT, "--role=notmine",
                   PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="4", DDRUN_ROLE="mine", PET_ROLE="theirs")
    assert shown["nproc-per-node"] == ("3", "command line")
    assert shown["module"] == ("yes", "command line")
    assert shown["max-restarts"] == ("4", "environment PET_MAX_RESTARTS")
    assert shown["role"] == ("mine", "environment DDRUN_ROLE")
    assert shown["label"] == ("no", "default")


def test_show_config_shows_no_password():
    etcd = "etcd://ann:se/cr@et@host:1/x"
    shown = config(f"--rdzv-endpoint={etcd}", SCRIPT, DDRUN_NOTIFY="https://hooks.example.org/T0/secret")
    assert shown["rdzv-endpoint"] == ("etcd://***@host:1/x", "command line")
    assert shown["notify"] == ("***", "environment DDRUN_NOTIFY")
    assert config("--rdzv-endpoint=host:1", SCRIPT)["rdzv-endpoint"][0] == "host:1" and config(SCRIPT)["notify"] == ("", "default")
    shown = ask("--show-config=json", f"--rdzv-endpoint={etcd}", SCRIPT)
    assert "etcd://***@host:1/x" in shown.stdout and "cr@et" not in shown.stdout, shown


def test_show_config_starts_nothing():
    assert "RANK" not in ask("--show-config", SCRIPT).stdout


@pytest.mark.parametrize("args", [
    ["--nproc_per_node=2", "--max_restarts", "3"],
    ["--nproc-per=2", "--max-re=3"],
    ["--nproc-per-node=7", "--max-restarts=9", "--nproc-per-node=2", "--max-restarts=3"],
])
def test_spellings_of_torchrun(args):
    shown = config(*args)
    assert (shown["nproc-per-node"][0], shown["max-restarts"][0]) == ("2", "3")


def test_a_variable_with_a_wrong_value_is_named():
    job = run(SCRIPT, env=clean_env(PET_MAX_RESTARTS="abc"))
    assert job.p.returncode == 2
    assert some_line(job.err, "ddrun: error: ", "PET_MAX_RESTARTS", "'abc'", "1000000"), job.err


def test_an_unknown_option_gets_a_suggestion():
    job = run("--max-restrats=3", SCRIPT)
    assert job.err == "ddrun: error: unknown option '--max-restrats'\n  tip: did you mean '--max-restarts'?\n"


@pytest.mark.parametrize("args, tip", [
    (["--help=restrat"], "did you mean 'ddrun --help=restarts'?"),
    (["--mem=4G", SCRIPT], "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 --mem=4G ddrun ..."),
    (["-c4", SCRIPT], "--bind"),
    (["--mpi=pmi2", SCRIPT], "for example --mpi=auto"),
])
def test_a_wrong_word_gets_the_tip_that_fits(args, tip):
    job = run(*args)
    assert job.p.returncode == 2 and tip in job.err, job.err


def test_the_short_forms_of_log_level_are_in_the_help():
    assert "-v is --log-level=info" in " ".join(ask("--help=verbose").stdout.split())


ARGUMENTS = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=0x2ff, exclude_characters="$\x7f"),
                             max_size=8), max_size=5)


@settings(max_examples=15, deadline=None)
@given(ARGUMENTS)
def test_the_arguments_of_the_script_are_its_own(words):
    """The words after SCRIPT arrive unchanged, except one "--" right after it."""
    job = run(SCRIPT, *words, env=clean_env(PYTHONIOENCODING="utf-8"))
    assert job.p.returncode == 0, job.err
    expected = words[1:] if words[:1] == ["--"] else words
    assert json_lines(job.out)[0]["argv"] == expected


def test_a_torchrun_command_line_works_as_it_is():
    job = run("--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv-conf", "timeout=900,read_timeout=60",
              "--rdzv_id=run7", "--monitor-interval=5", "--role=trainer", "--max_restarts=1", SCRIPT, "--lr", "0.1")
    assert job.p.returncode == 0, job.err
    workers = json_lines(job.out)
    assert sorted(w["env"]["RANK"] for w in workers) == ["0", "1"]
    for w in workers:
        assert w["argv"] == ["--lr", "0.1"]
        assert w["env"]["ROLE_NAME"] == "trainer"
        assert w["env"]["TORCHELASTIC_MAX_RESTARTS"] == "1"
        assert w["env"]["TORCHELASTIC_RUN_ID"] == "run7"


def test_rdzv_id_names_a_simulated_job(tmp_path):
    report = tmp_path / "report.json"
    job = run("--simulate-nodes=2", "--rdzv-id=sleepy", f"--report={report}", f"--log-dir={tmp_path}/logs", "sh", "-c", "echo $TORCHELASTIC_RUN_ID")
    assert job.p.returncode == 0 and job.out == "sleepy\n" * 2, job.err
    assert re.fullmatch(r"simulated\.[0-9a-f]{16}\.sleepy", json.loads(report.read_text())["job"])
    assert [name.split("_")[0] for name in os.listdir(tmp_path / "logs")] == ["sleepy"] * 2
    assert "invalid value '' for --rdzv-id" in run("--simulate-nodes=2", "--rdzv-id=", "true").err


@pytest.mark.parametrize("how, expected", [
    ("rewrite", ["0", "1"]),
    ("keep", ["5", "5"]),
    ("strip", [None, None]),
])
def test_slurm_env(how, expected):
    env = clean_env(SLURM_JOB_ID="7", SLURM_PROCID="5", SLURM_LOCALID="5")
    job = run("--standalone", "--nproc-per-node=2", f"--slurm-env={how}", SCRIPT, env=env)
    assert job.p.returncode == 0, job.err
    assert sorted((w["env"].get("SLURM_PROCID") for w in json_lines(job.out)), key=str) == expected


def test_a_munge_socket_that_is_not_there_is_no_key_source(tmp_path):
    with Job("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=0", "--rdzv-timeout=2s",
             f"--munge-socket={tmp_path}/none", "--log-level=info", SCRIPT, env=clean_env(HOME=str(tmp_path))) as job:
        assert job.wait() != 0
        source = [line for line in job.err.splitlines() if "key source: " in line]
        assert source and "MUNGE" not in source[0].split("key source: ")[1]


# Bytes of the c10d protocol.

HELLO = b"\x00\xce\xf7\x85\x3c"


def connect(server, hello=HELLO):
    s = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT)
    s.sendall(hello)
    return s


def text(data):
    return struct.pack("<Q", len(data)) + data


def set_and_get(s, key, value):
    """Return the reply to GET, or None if the server closed the connection."""
    try:
        s.sendall(b"\x01" + text(key) + text(value) + b"\x03" + text(key))
        with s.makefile("rb") as f:
            head = f.read(8)
            return f.read(struct.unpack("<Q", head)[0]) if len(head) == 8 else None
    except ConnectionError:
        return None


def test_max_value_refuses_a_longer_value_and_serves_on(new_server):
    store = new_server("--max-value=1K")
    assert set_and_get(connect(store), b"/a", b"x" * 1024) == b"x" * 1024
    assert set_and_get(connect(store), b"/a", b"x" * 1025) is None
    assert set_and_get(connect(store), b"/b", b"still here") == b"still here"


def test_max_memory_refuses_what_does_not_fit_and_serves_on(new_server):
    store = new_server("--max-memory=1M")
    big = b"x" * 300_000
    answers = [set_and_get(connect(store), b"/%d" % i, big) for i in range(6)]
    assert answers[0] == big
    # The order in which the bytes arrive decides which ones the server refuses: incomplete values take memory, too.
    assert answers.count(big) <= 3 and answers.count(None) >= 3
    assert set_and_get(connect(store), b"/0", b"small") == b"small"


def test_old_clients_are_served_only_when_asked_for(new_server):
    old_set_get = b"\x00" + text(b"k") + text(b"v") + b"\x02" + text(b"k")  # numbers of PyTorch 1.13
    with connect(new_server(), old_set_get) as s:
        assert s.makefile("rb").read(1) == b""
    with connect(new_server("--old-clients=1.13"), old_set_get) as s:
        assert s.makefile("rb").read(9) == text(b"v")


@pytest.mark.parametrize("args, says", [
    (["--hang-sign=file"], ("--hang-sign", "--hang-timeout")),
    (["--duplicate-stdout-filters=loss"], ("--duplicate-stdout-filters", "--tee")),
    (["--grow=now"], ("--grow", "--nnodes=MIN:MAX")),
    (["--progress-restarts=5"], ("--progress-restarts has no effect without --progress-regex or --progress-file",)),
    (["--progress-restarts=5", "--progress-file=step"], None),
    (["--nnodes=1:1", "--grow=now"], None),
    (["--hang-sign=file", "--hang-timeout=1h"], None),
])
def test_an_option_that_has_no_effect_is_told(args, says):
    job = run(*args, "--standalone", "true")
    assert job.p.returncode == 0
    assert some_line(job.err, "ddrun: warning: ", *says) and job.err.count("\n") == 1 if says else job.err == "", job.err


@pytest.mark.parametrize("args", [["--stdin=4"], ["--pty=4"], ["--simulate-nodes=2", "--stdin=8"]])
def test_a_rank_that_is_not_there_gets_no_input(args):
    job = run("--nproc-per-node=4", *args, "sh", "-c", "echo started")
    assert job.p.returncode == 2 and job.out == "", job.err
    assert "ranks 0 to" in job.err, job.err


@pytest.mark.parametrize("option, said", [("--wrap=5:gdb", "--wrap=5:..."), ("--env=7:A=1", "--env=7:..."), ("--preload=0,2:libm.so.6", "--preload=0,2:...")])
def test_a_rule_for_a_rank_that_is_not_there_is_refused(option, said):
    job = run("--nproc-per-node=2", option, "sh", "-c", "echo started")
    assert job.p.returncode == 2 and job.out == "", job.err
    assert f"{said} is out of range: the job has ranks 0 to 1\n" in job.err


def test_a_rule_from_some_rank_on_fits_any_job():
    assert run("--nproc-per-node=2", "--env=1-9999:A=1", "sh", "-c", "echo $RANK$A").out.split() in (["0", "11"], ["11", "0"])


def test_a_rule_for_a_rank_that_an_elastic_job_may_get_later_is_told_once():
    job = run("--simulate-nodes=2", "--nnodes=2:3", "--nproc-per-node=1", "--env=2:A=1", "true")
    assert job.p.returncode == 0 and job.err.count("\n") == 1, job.err
    assert "warning: --env=2:... has no effect yet: the job has ranks 0 to 1" in job.err


def test_a_filter_that_hides_all_workers_is_told_once():
    job = run("--simulate-nodes=2", "--nproc-per-node=2", "--local-ranks-filter=5,7", "echo", "hidden")
    assert job.p.returncode == 0 and job.out == "" and job.err.count("\n") == 1, job.err
    assert "warning: --local-ranks-filter=5,7" in job.err
    assert run("--nproc-per-node=2", "--local-ranks-filter=1,2,3", "true").err == ""


TORCHRUN = """duplicate-stderr-filters duplicate-stdout-filters event-log-handler help local-addr local-ranks-filter log-dir
logs-specs master-addr master-port max-restarts module monitor-interval nnodes no-python node-rank nproc-per-node numa-binding
rdzv-backend rdzv-conf rdzv-endpoint rdzv-id redirects role run-path shutdown-timeout signals-to-handle standalone start-method
tee virtual-local-rank""".split()


def test_torchruns_abbreviations_mean_what_they_mean_there():
    """Options of ddrun alone that begin with the same letters (--tf, --roles, --health) make no difference."""
    shown = config("--t=1", "--ro=trainer", "--max=0", "--log-d=/dev/null", "true")
    assert [shown[name][0] for name in ("tee", "role", "max-restarts", "log-dir")] == ["1", "trainer", "0", "/dev/null"]
    assert ask("--h").stdout == ask("--help").stdout
    for name in TORCHRUN:
        begins = next(name[:n] for n in range(1, len(name) + 1)
                      if name[:n] == name or [o.startswith(name[:n]) for o in TORCHRUN].count(True) == 1)
        said = ask(f"--{begins}=?", "--show-config", "true").stderr
        assert "ambiguous" not in said and "unknown option" not in said, (name, begins, said)
