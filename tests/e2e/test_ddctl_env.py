"""ddctl env: the variables for workers that another launcher starts, in every environment recorded from a real job."""

import glob
import json
import os
import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import BUILD, LIMIT, PYTHON, clean_env, free_port, some_line, without_tips

DDCTL = os.path.join(BUILD, "ddctl")
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "env")
HOST = os.uname().nodename
MINE = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}

pytestmark = pytest.mark.skipif(not os.access(DDCTL, os.X_OK), reason=f"{DDCTL} is not built")


def ask(*args, env=None, **more):
    return subprocess.run([DDCTL, "env", *args], env=env if env is not None else clean_env(**more), capture_output=True,
                          text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)


def told(*args, env=None, **more):
    """Return the variables that a worker would get as a dict; None: the variable must be unset."""
    answer = ask("--format=json", *args, env=env, **more)
    assert (answer.returncode, answer.stderr) == (0, "")
    return json.loads(answer.stdout)


def refused(*args, **more):
    answer = ask(*args, **more)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("ddctl env: error: ") and len(without_tips(answer.stderr)) == 1
    return answer.stderr


def recorded(name, host=None, nodefile=None):
    """Return the recorded environment, in which this machine takes the place of node `host`."""
    with open(os.path.join(DATA, name + ".env"), encoding="utf-8") as f:
        env = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)
    env["PATH"] = os.environ["PATH"]
    if host is not None and "SLURM_JOB_NODELIST" in env:
        names = subprocess.run([DDCTL, "hosts", env["SLURM_JOB_NODELIST"]], env=clean_env(), capture_output=True, text=True,
                               check=True).stdout.split()
        env["SLURM_JOB_NODELIST"] = ",".join(HOST if n == host else n for n in names)
    if nodefile is not None:
        env["PBS_NODEFILE"] = str(nodefile)
    return env


def steps():
    found = sorted(os.path.basename(path)[:-4] for path in glob.glob(f"{DATA}/slurm-*.env"))
    return [name for name in found if "SLURM_STEP_ID" in recorded(name)]


# ---- tasks of srun


@pytest.mark.parametrize("name", steps())
def test_a_task_of_srun_is_the_worker_that_slurm_says(name):
    env = recorded(name)
    says = told("--master-addr=10.0.0.1", env=env)
    per_node = [int(n) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env["SLURM_STEP_TASKS_PER_NODE"])
                for _ in range(int(times or 1))]
    assert {n: says[n] for n in MINE - {"MASTER_PORT"}} == {
        "RANK": env["SLURM_PROCID"], "WORLD_SIZE": env["SLURM_STEP_NUM_TASKS"], "LOCAL_RANK": env["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(per_node[int(env["SLURM_NODEID"])]), "GROUP_RANK": env["SLURM_NODEID"], "MASTER_ADDR": "10.0.0.1"}
    assert says["MASTER_PORT"] == env["SLURM_STEP_RESV_PORTS"].split("-")[0]
    assert not [n for n in says if n.startswith(("SLURM", "PMI", "TORCHELASTIC_", "DDRUN_", "ROLE_"))], says


@pytest.mark.parametrize("case", sorted({re.sub(r"(\.\d+){2}$", "", name) for name in steps()}))
def test_the_tasks_of_a_step_agree(case):
    answers = [told("--master-addr=a", "--tf", env=recorded(n)) for n in steps() if re.sub(r"(\.\d+){2}$", "", n) == case]
    clusters = [json.loads(a["TF_CONFIG"]) for a in answers]
    assert all(c["task"]["index"] == int(a["RANK"]) for a, c in zip(answers, clusters))
    assert all(c["cluster"] == clusters[0]["cluster"] for c in clusters)
    workers = clusters[0]["cluster"]["worker"]
    assert len(set(workers)) == len(workers) == int(answers[0]["WORLD_SIZE"])
    assert len({(a["MASTER_PORT"], a["JAX_COORDINATOR_ADDRESS"]) for a in answers}) == 1


def test_any_rank_may_be_asked_for():
    env = recorded("slurm-22.05-tasks4x2.0.1")
    assert told("--rank=6", "--master-addr=a", env=env) == told("--master-addr=a", env=recorded("slurm-22.05-tasks4x2.1.6"))
    node = told("--node=1", "--master-addr=a", env=env)
    assert (node["GROUP_RANK"], node["LOCAL_WORLD_SIZE"]) == ("1", "4") and "RANK" not in node
    assert "8 workers" in refused("--rank=8", env=env)
    assert "2 nodes" in refused("--node=2", env=env)
    assert some_line(refused("--node=0", "--rank=1", env=env), "--node", "--rank")
    assert "--nproc-per-node" in refused("--nproc-per-node=2", env=env)


def test_one_task_a_node_with_several_workers_hears_what_is_theirs():
    says = told("--nproc-per-node=4", "--master-addr=a", env=recorded("slurm-22.05-step4.2.2"))
    assert (says["WORLD_SIZE"], says["GROUP_RANK"], says["LOCAL_WORLD_SIZE"]) == ("16", "2", "4")
    assert not {"RANK", "LOCAL_RANK"} & set(says)
    says = told("--nproc-per-node=4", "--rank=9", "--master-addr=a", env=recorded("slurm-22.05-step4.2.2"))
    assert (says["RANK"], says["LOCAL_RANK"], says["GROUP_RANK"]) == ("9", "1", "2")


def test_ranks_dealt_out_in_turn_are_slurms_own():
    env = dict(recorded("slurm-22.05-tasks4x2.0.1"), SLURM_PROCID="2", SLURM_LOCALID="1", SLURM_NODEID="0")  # cyclic
    says = told("--master-addr=a", env=env)
    assert (says["RANK"], says["LOCAL_RANK"], says["GROUP_RANK"]) == ("2", "1", "0")
    assert told("--rank=2", "--master-addr=a", env=env) == says
    assert "--distribution=block" in refused("--rank=3", "--master-addr=a", env=env)
    assert "--distribution=block" in refused("--tf", "--master-addr=a", env=env)


def test_variables_of_an_agent_that_is_not_there_are_taken_away():
    env = dict(recorded("slurm-22.05-step4.0.0"), TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="old",
               PMI_RANK="3", OMPI_MCA_orte_hnp_uri="x")
    says = told("--master-addr=a", env=env)
    assert {n: v for n, v in says.items() if v is None} == {"TORCHELASTIC_USE_AGENT_STORE": None, "TORCHELASTIC_RUN_ID": None}
    assert "unset TORCHELASTIC_RUN_ID;\n" in ask("--master-addr=a", env=env).stdout
    assert "unsetenv TORCHELASTIC_RUN_ID;\n" in ask("--master-addr=a", "--format=csh", env=env).stdout


# ---- batch scripts


def test_a_batch_script_and_its_steps_agree_on_ports_when_asked():
    script = recorded("slurm-22.05-batch.0.0", "node1")
    tasks = [recorded(f"slurm-22.05-batchstep.{i}.{i}") for i in range(3)]
    names = ("--whole-job", "--master-addr=a", "--format=values", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS")
    answers = {ask(*names, env=env).stdout for env in [script, *tasks]}
    assert len(answers) == 1 and 30000 <= int(answers.pop().split()[0]) <= 32767
    alone = {ask(*names[1:], env=env).stdout for env in [script, *tasks]}
    assert len(alone) == 2


def test_a_batch_script_of_several_tasks_hears_what_all_have_in_common():
    env = recorded("slurm-22.05-batch.0.0", "node1")
    says = told("--master-addr=a", env=env)
    assert says["WORLD_SIZE"] == "3" and says["LOCAL_WORLD_SIZE"] == "1"
    assert not {"RANK", "GROUP_RANK", "TF_CONFIG", "CROSS_RANK"} & set(says)
    assert "--rank" in refused("--master-addr=a", "RANK", env=env)
    says = told("--master-addr=a", "--node=2", "--tf", env=env)
    assert says["RANK"] == "2" and json.loads(says["TF_CONFIG"])["task"]["index"] == 2


def test_the_script_takes_the_tasks_that_srun_would_start():
    env = recorded("slurm-22.05-batch.0.0", "node1")
    env.update(SLURM_NTASKS="6", SLURM_TASKS_PER_NODE="3,2,1")
    assert told("--master-addr=a", env=env)["WORLD_SIZE"] == "6"
    says = told("--master-addr=a", "--rank=4", env=env)
    assert (says["LOCAL_RANK"], says["GROUP_RANK"], says["LOCAL_WORLD_SIZE"]) == ("1", "1", "2")
    assert told("--nproc-per-node=4", "--master-addr=a", env=env)["WORLD_SIZE"] == "12"
    env["SLURM_TASKS_PER_NODE"] = "x"
    assert "SLURM_TASKS_PER_NODE" in refused(env=env)


def test_the_shell_of_salloc_is_no_node():
    env = dict(recorded("slurm-22.05-salloc.b.b"), SLURM_SUBMIT_HOST=HOST)
    says = told("--master-addr=a", env=env)
    assert says["WORLD_SIZE"] == "2" and "RANK" not in says
    assert told("--master-addr=a", "--node=1", env=env)["RANK"] == "1"


# ---- PBS


def pbs():
    found = sorted(os.path.basename(path)[:-4] for path in glob.glob(f"{DATA}/openpbs-*.env"))
    return [name for name in found if "-all0." not in name]


@pytest.mark.parametrize("name", pbs())
def test_a_task_of_pbs_is_the_worker_of_its_node(name, tmp_path):
    case = name.split(".")[1].split("-")[-1]
    files = sorted(glob.glob(f"{DATA}/openpbs-23.06-{case}.*.nodefile"))
    names = open(files[-1], encoding="utf-8").read().split()
    nodes = list(dict.fromkeys(names))
    place = re.search(r"\.(node\d)", name)
    mine = place.group(1) + ".cluster.test" if place else nodes[0]
    (tmp_path / "nodes").write_text("".join(f"{HOST if n == mine else n}\n" for n in names))
    says = told("--master-addr=a", env=recorded(name, nodefile=tmp_path / "nodes"))
    assert says["WORLD_SIZE"] == str(len(nodes)) and says["LOCAL_WORLD_SIZE"] == "1"
    script = ".script" in name and len(nodes) > 1
    assert says.get("RANK") == (None if script else str(nodes.index(mine)))


MPIEXEC = [
    {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
    {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
    {"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "4", "PMI_SIZE": "8"},
]


@pytest.mark.parametrize("variables", MPIEXEC)
def test_processes_of_mpiexec_are_workers(variables, tmp_path):
    (tmp_path / "nodes").write_text(f"node1.cluster.test\n{HOST}\n")
    env = dict(recorded("openpbs-23.06-scatter4.script", nodefile=tmp_path / "nodes"), **variables)
    says = told("--master-addr=a", env=env)
    assert (says["RANK"], says["WORLD_SIZE"], says["LOCAL_RANK"], says["LOCAL_WORLD_SIZE"], says["GROUP_RANK"]) == ("5", "8", "1", "4", "1")
    assert set(variables) & set(says) == set()
    assert "contradicts" in refused("--nproc-per-node=2", env=env)


def test_mpiexec_on_machines_that_nobody_names_is_refused():
    assert "--hosts=LIST" in refused(env=clean_env(**MPIEXEC[0]))
    assert told("--hosts", f"elsewhere,{HOST}", "--master-addr=a", env=clean_env(**MPIEXEC[0]))["RANK"] == "5"
    assert "OMPI_COMM_WORLD" in refused(env=clean_env(**dict(MPIEXEC[0], OMPI_COMM_WORLD_SIZE="3")))
    assert "OMPI_COMM_WORLD_RANK=x" in refused(env=clean_env(**dict(MPIEXEC[0], OMPI_COMM_WORLD_RANK="x")))


# ---- without a scheduler


def test_alone_it_is_rank_0_of_1_and_always_the_same():
    says = told()
    assert (says["RANK"], says["WORLD_SIZE"], says["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
    assert told() == says
    assert told("--rdzv-id=other")["MASTER_PORT"] != says["MASTER_PORT"]
    assert told("--master-port=1234")["MASTER_PORT"] == "1234"


def test_a_name_that_leads_nowhere_stays_a_name_and_the_first_node_finds_an_address_of_its_own():
    other = told("--hosts", f"no-such-host.invalid,{HOST}", "MASTER_ADDR", "RANK")
    assert other == {"MASTER_ADDR": "no-such-host.invalid", "RANK": "1"}
    first = told("--hosts", f"{HOST},no-such-host.invalid", "MASTER_ADDR")["MASTER_ADDR"]
    assert first == HOST or not first.startswith("127.")


def test_a_hostfile_names_the_nodes(tmp_path):
    (tmp_path / "nodes").write_text(f"n1\n{HOST}\n")
    assert told("--hostfile", str(tmp_path / "nodes"), "--master-addr=a", "RANK", "WORLD_SIZE") == {"RANK": "1", "WORLD_SIZE": "2"}


def test_gpus_and_frameworks():
    says = told("--nproc-per-node=2", "--rank=1", "--tf", "--roles=chief:1,worker:*", CUDA_VISIBLE_DEVICES="4,6")
    assert says["CUDA_VISIBLE_DEVICES"] == "6" and says["JAX_LOCAL_DEVICE_IDS"] == "1"
    assert json.loads(says["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    says = told("--framework=jax,paddle,mindspore", "--nproc-per-node=2", "--rank=1")
    assert says["SLURM_PROCID"] == "1" and says["PADDLE_TRAINER_ID"] == "1" and says["MS_NODE_ID"] == "1"
    assert "--tf" in refused("--roles=worker:*")
    assert "'jaxx'" in refused("--framework=jaxx")
    masked = dict(recorded("slurm-22.05-gpupertask.1.3"))  # Slurm masks the GPUs of other tasks
    assert told("--master-addr=a", env=masked)["JAX_LOCAL_DEVICE_IDS"] == "0"


def test_names_are_written_in_their_order_and_wrong_ones_refused():
    assert ask("--format=values", "WORLD_SIZE", "RANK").stdout == "1\n0\n"
    assert "NOTHING" in refused("NOTHING")
    assert ask("WORLD_SIZE", "RANK", "--format=values").stdout == "1\n0\n"
    assert "--tf" in refused("--", "RANK", "--tf")
    assert "--format" in refused("--format=xml")
    assert "--env (-x): '2=3' is not NAME=VALUE" in refused("--env=1:2=3")


def test_what_utf8_or_csh_cannot_say_is_refused():
    assert "newline" in refused("--format=csh", "--env=all:X=a\nb")
    assert "UTF-8" in refused("--format=json", "--env=all:X=\udcff")


SHELLS = {"sh": ("/bin/sh", 'eval "$({})"; printenv X'), "bash": ("bash", 'eval "$({})"; printenv X'),
          "zsh": ("zsh", 'eval "$({})"; printenv X'), "tcsh": ("tcsh", 'eval "`{}`"; printenv X')}


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    """Return a script `asker FORMAT`, which runs ddctl env with a variable X that holds $VALUE."""
    path = tmp_path_factory.mktemp("ask") / "asker"
    path.write_text(f"""#!/bin/sh\nexec {DDCTL} env --format="$1" --env="all:X=$VALUE" X\n""")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"'"))
       | st.text("'\"!\\$`~*?[]{}();&|<># \t\n%^=,", max_size=12).map(str.encode))
def test_the_shell_reads_the_same_bytes_again(shell, value, asker):
    program, script = SHELLS[shell]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    form = "csh" if shell == "tcsh" else "sh"
    if form == "csh":
        value = value.replace(b"\n", b"!")
    env = {os.fsencode(k): os.fsencode(v) for k, v in clean_env(LC_ALL="C").items()}
    options = {"tcsh": ["-f"], "zsh": ["-f"]}.get(shell, [])
    run = subprocess.run([program, *options, "-c", script.format(f"{asker} {form}")], env={**env, b"VALUE": value},
                         capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL, check=False)
    assert run.stdout == value + b"\n", run.stderr


def test_ddp_is_started_by_a_shell_alone(tmp_path):
    """No ddrun process takes part."""
    script = f"""
    for r in 0 1; do
        (eval "$({DDCTL} env --nproc-per-node=2 --rank=$r --master-port={free_port()})"; exec {PYTHON} {HERE}/train_torch.py --ddp) &
        pids="$pids $!"
    done
    for p in $pids; do wait $p || exit 1; done
    """
    run = subprocess.run(["/bin/sh", "-c", script], env=clean_env(TMPDIR=str(tmp_path)), capture_output=True, text=True,
                         timeout=LIMIT, stdin=subprocess.DEVNULL, check=False)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert sorted((e["rank"], e["world"], e["reduced"]) for e in lines) == [(0, 2, 3), (1, 2, 3)]


@pytest.mark.parametrize("variables", [{"JOB_ID": "8", "PE": "mpi", "SGE_ROOT": "/x", "SGE_TASK_ID": "undefined", "NHOSTS": "2", "PE_HOSTFILE": "FILE"},
                                       {"OAR_JOB_ID": "9", "OAR_NODEFILE": "FILE"}])
def test_an_empty_node_file_is_refused(tmp_path, variables):
    nodes = tmp_path / "nodes"
    nodes.touch()
    env = clean_env(**{k: v.replace("FILE", str(nodes)) for k, v in variables.items()})
    done = subprocess.run([DDCTL, "env", "--nproc-per-node=2"], env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2 and "empty" in done.stderr, done
