"""The output of ddctl, as a batch script reads it."""

import os
import re
import shutil
import subprocess

import pytest

from support import BUILD, LIMIT, clean_env, run, without_tips

DDCTL = os.path.join(BUILD, "ddctl")
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "env")
HERE = os.uname().nodename


def ask(*args, **env):
    return subprocess.run([DDCTL, *args], env=clean_env(**env), capture_output=True, text=True, timeout=LIMIT,
                          stdin=subprocess.DEVNULL)


def hosts(*args, **env):
    """Return the output lines of ddctl hosts, which must succeed with an empty stderr."""
    answer = ask("hosts", *args, **env)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.splitlines()


def refused(*args, **env):
    """Return the message of a refused command: one sentence, besides tips."""
    answer = ask(*args, **env)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert len(without_tips(answer.stderr)) == 1
    return answer.stderr


@pytest.mark.parametrize(
    "args, lines",
    [
        (["n[1-3]"], ["n1", "n2", "n3"]),
        (["--expand", "n[01-02],x"], ["n01", "n02", "x"]),
        (["n2", "n[1-2]"], ["n2", "n1", "n2"]),
        (["--union", "n2", "n[1-2]"], ["n2", "n1"]),
        (["--common", "n[1-5]", "n[4,2,9]", "n[2-4]"], ["n2", "n4"]),
        (["--common", "a,a,b", "a"], ["a"]),
        (["--common", "a", "b"], []),
        (["--without=n2", "n[1-3]"], ["n1", "n3"]),
        (["--without=n2", "--without=n[3-9]", "n[1-4]"], ["n1"]),
        (["--without=", "n1"], ["n1"]),
        (["--without=N1", "n1"], ["n1"]),
        (["--fold", "n3", "n1 n2"], ["n[3,1-2]"]),
        (["n3", "--fold", "n1 n2"], ["n[3,1-2]"]),
        (["--fold", "--without=n1", "n1"], []),
        (["--count", "n[1-3]", "n1"], ["4"]),
        (["--count", "--union", "n[1-3]", "n1"], ["3"]),
        (["--count", "--without=n1", "n1"], ["0"]),
        (["--nth=0", "n[1-3]"], ["n1"]),
        (["--nth=-1", "n[1-3]"], ["n3"]),
        (["--nth", "-3", "n[1-3]"], ["n1"]),
        (["--count", "n[1-65536]"], ["65536"]),
        (["--format=json", "n[1-2],x"], ['["n1", "n2", "x"]']),
        (["--format=json", "--common", "a", "b"], ["[]"]),
    ],
)
def test_names_of_expressions(args, lines):
    assert hosts(*args) == lines


@pytest.mark.parametrize(
    "args, said",
    [
        (["n[1-"], "n[1-"),
        (["--without=n]", "n1"], "--without"),
        (["n[1-65536]", "n1"], "65536"),
        (["n[1-65537]"], "65536"),
        ([""], "empty"),
        (["n1", " "], "empty"),
        (["--", "n1", "--fold"], "--fold"),
        (["--format=json", "--fold", "n1"], "--format=json"),
        (["--nth=3", "n[1-3]"], "3 names"),
        (["--nth=-4", "n[1-3]"], "3 names"),
        (["--nth=0", "--without=n1", "n1"], "0 names"),
        (["--nth=x", "n1"], "--nth"),
        (["--fold", "--count", "n1"], "--fold"),
        (["--nth=0", "--expand", "n1"], "--expand"),
        (["--union", "--common", "n1", "n2"], "--union and --common"),
        (["--common", "n1"], "--common"),
        (["--foldd", "n1"], "'--fold'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(args, said):
    sentence = refused("hosts", *args)
    assert sentence.startswith("ddctl hosts: ")
    assert said in sentence


def test_each_task_of_a_step_speaks_for_itself():
    assert "'n['" in refused("hosts", "n[", SLURM_PROCID="3")


@pytest.mark.parametrize("args", [[], ["hotss"], ["--nothing"], ["hotss", "--help"]])
def test_without_a_right_command(args):
    assert refused(*args).startswith("ddctl: ")


@pytest.mark.parametrize("args, names", [(["--help"], ["hosts"]), (["hosts", "--help"], ["--fold", "--without="])])
def test_help(args, names):
    answer = ask(*args)
    assert answer.returncode == 0
    assert all(name in answer.stdout for name in names)
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_version():
    assert ask("--version").stdout.split()[0] == "ddctl"


def test_full_disk_is_no_success():
    with open("/dev/full", "w", encoding="utf-8") as full:
        answer = subprocess.run([DDCTL, "hosts", "n1"], env=clean_env(), stdout=full, stderr=subprocess.PIPE, text=True,
                                timeout=LIMIT)
    assert answer.returncode == 1
    assert "No space left" in answer.stderr


# ---- the nodes of this job


def test_no_job_is_this_machine():
    assert hosts() == [HERE]


BATCH = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": f"n[1-2],{HERE}", "SLURM_NODEID": "2", "SLURM_PROCID": "0"}


def test_batch_script_of_several_nodes():
    assert hosts(**BATCH) == ["n1", "n2", HERE]
    assert hosts("--count", "--without=n1", **BATCH) == ["2"]


def test_shell_of_salloc():
    assert hosts(SLURM_JOB_ID="5", SLURM_JOB_NODELIST="n[1-2]", SLURM_SUBMIT_HOST=HERE) == ["n1", "n2"]


def test_every_task_of_a_step_sees_each_node_once():
    step = dict(BATCH, SLURM_STEP_ID="0", SLURM_STEP_NODELIST=f"n1,{HERE}", SLURM_STEP_TASKS_PER_NODE="2(x2)",
                SLURM_NODEID="1", SLURM_LOCALID="1", SLURM_PROCID="3")
    assert hosts(**step) == ["n1", HERE]


def test_variables_of_another_machines_job_are_not_believed():
    answer = ask("hosts", SLURM_JOB_ID="5", SLURM_JOB_NODELIST="n[1-2]", SLURM_NODEID="0")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "another machine" in answer.stderr and "unset SLURM_*" in answer.stderr


@pytest.mark.parametrize("case", ["scatter1", "hosts121", "ppn"])
def test_script_of_pbs(case, tmp_path):
    """Recorded jobs: the node file names a node once per MPI process, and the script runs on the first node."""
    names = open(f"{DATA}/openpbs-23.06-{case}.script.nodefile", encoding="utf-8").read().split()
    mine = [HERE if name == names[0] else name for name in names]
    nodefile = tmp_path / "nodes"
    nodefile.write_text("".join(f"{name}\n" for name in mine))
    pbs = {"PBS_JOBID": "1.srv", "PBS_NODEFILE": str(nodefile), "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODENUM": "0",
           "PBS_TASKNUM": "1"}
    assert len(set(mine)) > 1
    assert hosts(**pbs) == list(dict.fromkeys(mine))


@pytest.mark.parametrize("variables, text, names", [
    ({"LSB_JOBID": "9", "LSB_DJOB_HOSTFILE": "FILE"}, "n1\nn1\n{here}\n", ["n1", HERE]),
    ({"LSB_JOBID": "9", "LSB_MCPU_HOSTS": f"n1 4 {HERE} 4"}, "", ["n1", HERE]),
    ({"LSB_JOBID": "9", "LSB_HOSTS": f"n1 n1 {HERE}"}, "", ["n1", HERE]),
    ({"LSB_JOBID": "9", "LSB_DJOB_HOSTFILE": "FILE", "JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "2"}, "batch\nn1\n{here}\n", ["n1", HERE]),
    ({"JOB_ID": "3", "SGE_ROOT": "/x", "PE_HOSTFILE": "FILE"}, "n1 4 all.q@n1 UNDEFINED\n{here} 4 all.q UNDEFINED\nn1 2 b.q@n1 0\n", ["n1", HERE]),
    ({"OAR_JOBID": "5", "OAR_NODEFILE": "FILE"}, "{here}\n{here}\nn2\n", [HERE, "n2"]),
    ({"COBALT_JOBID": "6", "COBALT_NODEFILE": "FILE"}, "{here}\nn2\n", [HERE, "n2"]),
    ({"COBALT_JOBID": "6", "COBALT_PARTNAME": "3-4,7"}, "", ["nid00003", "nid00004", "nid00007"]),
    ({"PBS_VERSION": "TORQUE-6.1", "PBS_JOBID": "7.srv", "PBS_TASKNUM": "1", "PBS_NODEFILE": "FILE", "PBS_NUM_NODES": "2"},
     "{here}\n{here}\nn2\n", [HERE, "n2"]),
    ({"PBS_JOBID": "7.srv", "PBS_TASKNUM": "1", "PBS_NODEFILE": "FILE", "PALS_RANKID": "1", "PALS_LOCAL_SIZE": "1", "PMI_SIZE": "2"},
     "x1c0.net\n{here}.net\n", ["x1c0.net", f"{HERE}.net"]),
])
def test_jobs_of_other_schedulers(variables, text, names, tmp_path):
    file = tmp_path / "nodes"
    file.write_text(text.format(here=HERE))
    assert hosts(**{name: str(file) if value == "FILE" else value for name, value in variables.items()}) == names


@pytest.mark.parametrize("variables, says, right", [
    ({"FLUX_ENCLOSING_ID": "f1", "FLUX_URI": "local:///x"}, "FLUX_ENCLOSING_ID", "flux hostlist local"),
    ({"FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "2"}, "2 nodes", "flux hostlist local"),
    ({"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "far[1-2]", "SLURM_SUBMIT_HOST": "login"}, "far[1-2]",
     "unset SLURM_*"),
    ({"SLURM_JOB_ID": "5", "SLURM_JOBID": "6", "SLURM_JOB_NODELIST": HERE}, "SLURM_JOB", "unset"),
    ({"PBS_JOBID": "5.srv", "PBS_TASKNUM": "1", "PBS_NODEFILE": "/var/spool/pbs/aux/6.srv"}, "PBS_JOBID=5.srv",
     "unset PBS_*"),
    ({"PBS_JOBID": "5.srv", "PBS_TASKNUM": "20000001"}, "5.srv", "job's script"),
    ({"LSB_JOBID": "9", "LSB_DJOB_HOSTFILE": "/nonexistent/file"}, "LSB_JOBID=9",
     "unset LSB_*"),
])
def test_what_is_refused_comes_with_advice_that_ddctl_can_take(variables, says, right):
    """The message names neither ddrun nor an option that ddctl hosts lacks."""
    sentence = refused("hosts", **variables)
    assert says in sentence and right in sentence and "ddrun" not in sentence and "--" not in sentence, sentence


def test_worker_knows_the_nodes_of_its_round(tmp_path):
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--no-python", DDCTL, "hosts", "--count")
    assert job.p.returncode == 0, job.err
    assert job.out.split() == ["2", "2"]


# ---- doctor (test_doctor.py has nodes for it)


def test_doctor_says_that_one_node_has_no_network_to_measure():
    assert "--net has measured nothing" in ask("doctor", "--net").stderr
    assert "--net" not in ask("doctor").stderr


def test_doctor_without_a_launcher_names_only_options_that_its_help_lists():
    err = refused("doctor", "--hosts=node[1-2]", "--launcher=none")
    shown = ask("doctor", "--help=all").stdout
    assert "found no usable launcher for the 2 nodes" in err and "--launcher=ssh" in err
    assert all(option in shown for option in re.findall(r"--[a-z-]+", err)), err


# ---- completion (check-completions lets zsh and fish parse theirs)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize("line, wanted", [("ddctl ho", "hosts"), ("ddctl hosts --fo", "--fold")])
def test_fish_offers(line, wanted):
    script = os.path.join(BUILD, "docs", "completions", "ddctl.fish")
    if not os.path.exists(script):
        pytest.skip(f"{script} is not made (make makes it)")
    shown = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], env=clean_env(), capture_output=True,
                           text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert wanted in [offer.split("\t")[0] for offer in shown.stdout.splitlines()]


@pytest.mark.parametrize("word, tip", [("statsu", "did you mean 'status'?"), ("stat", "did you mean 'status'?"),
                                       ("submarine", "'ddctl --help' lists all commands"),
                                       ("stop", "'ddctl signal TERM' stops"), ("kill", "'ddctl signal TERM' stops"),
                                       ("cancel", "'ddctl signal TERM' stops"), ("log", "ddrun prints"), ("logs", "ddrun prints")])
@pytest.mark.parametrize("before", [[], ["help"]])
def test_an_unknown_command_gets_the_nearest_one_as_a_tip(before, word, tip):
    err = refused(*before, word)
    assert f"error: unknown command '{word}'" in err and f"tip: {tip}" in err


def test_an_unknown_option_of_a_command_gets_the_nearest_one_as_a_tip():
    assert "tip: did you mean '--format'?" in refused("jobs", "--fromat=json")


def test_without_options_of_its_own_there_is_no_configuration_to_show():
    for command in [], ["report"]:
        assert "--show-config" not in ask(*command, "--help").stdout
        assert "error: ddctl" in (err := refused(*command, "--show-config")) and "no options whose values" in err
    assert "tip: 'ddctl COMMAND --show-config'" in refused("--show-config=json")
    assert "--show-config" in ask("status", "--help").stdout


def test_help_of_a_command_is_what_its_option_prints():
    assert ask("help").stdout == ask("--help").stdout
    assert ask("help", "status").stdout == ask("status", "--help").stdout
    assert "unexpected argument 'kv'" in refused("help", "status", "kv")


def test_a_job_is_named_by_an_option():
    for command in "status", "top", "events":
        assert "unexpected argument '4711'\n  tip: --job=ID selects a job" in refused(command, "4711")
    assert "tip" not in refused("jobs", "4711")
