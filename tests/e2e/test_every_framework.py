"""One ddrun command line serves every framework. Each reader below reads the variables that its framework reads, in the same
order, and must find the worker's own rank, size, local rank and local size."""

import glob
import json
import os
import re
import textwrap

import pytest

from support import DDRUN, LIMIT, Job
from test_frameworks import ours, script
from test_slurm import slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


TELL = """
    import json, os
    if os.environ.get("MS_ROLE") != "MS_SCHED":  # MindSpore's scheduler is a second process of rank 0
        with open(os.path.join(os.path.dirname(__file__), "told." + os.environ["RANK"]), "w") as f:
            json.dump(dict(os.environ), f)
"""


def told(folder):
    """Return the environments that TELL has written, by rank."""
    found = []
    for path in glob.glob(os.path.join(folder, "told.*")):
        with open(path, encoding="utf-8") as f:
            found.append(json.load(f))
    return sorted(found, key=lambda e: int(e["RANK"]))


def numbers(env, *names):
    """Return the values if all names are set, None if none is. Fail if only some are."""
    found = [n for n in names if n in env]
    assert found in ([], list(names)), f"only {found} of {names}"
    return tuple(int(env[n]) for n in names) if found else None


def torch(env):
    assert env["MASTER_ADDR"] and env["MASTER_PORT"] and env["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    return numbers(env, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def lightning(env):
    """Detects torchrun, then Slurm, then MPI; requires devices times nodes to be the size."""
    assert env.get("TORCHELASTIC_RUN_ID")
    rank, size, local, devices = torch(env)
    if env["UNEVEN"] == "no":
        assert devices * int(env["GROUP_WORLD_SIZE"]) == size
    assert 0 <= int(env["GROUP_RANK"]) < int(env["GROUP_WORLD_SIZE"])
    return rank, size, local, devices


def first_of(env, *names):
    return int(next(env[n] for n in names if n in env))


def accelerate(env):
    """On CPUs: reads the first name of each row that is set."""
    return (first_of(env, "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"),
            first_of(env, "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
            first_of(env, "LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
            first_of(env, "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"))


def deepspeed(env):
    """LOCAL_SIZE would make its CPU backend leave files in /dev/shm."""
    assert "LOCAL_SIZE" not in env
    assert (env["CROSS_RANK"], env["CROSS_SIZE"]) == (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"])
    return torch(env)


def horovod(env):
    """Uses Gloo in every build; its Python part reads the ranks and sizes before init()."""
    assert env["HOROVOD_CONTROLLER"] == env["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] and int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]) > 0 and env["HOROVOD_HOSTNAME"]
    cross, crosses = numbers(env, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
    assert 0 <= cross < crosses
    return numbers(env, "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")


def slurm_readers(env):
    """idr_torch and submitit prefer Slurm's variables to all others."""
    if "SLURM_STEP_ID" not in env:
        return None
    per_node = [int(n) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env["SLURM_STEP_TASKS_PER_NODE"])
                for _ in range(int(times or 1))]
    node = int(env["SLURM_NODEID"])
    assert sum(per_node) == int(env["SLURM_STEP_NUM_TASKS"]) == int(env["SLURM_NTASKS"])
    assert sum(per_node[:node]) + int(env["SLURM_LOCALID"]) == int(env["SLURM_PROCID"])
    assert str(per_node[node]) == env["SLURM_NTASKS_PER_NODE"]
    return (*numbers(env, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"), per_node[node])


def jax(env):
    """Detects Open MPI's mpirun, then Slurm if all five variables are set."""
    assert "OMPI_MCA_orte_hnp_uri" not in env
    assert re.fullmatch(r".+:\d+", env["JAX_COORDINATOR_ADDRESS"])
    five = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
    if not all(n in env for n in five):
        return None
    return int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"]), int(env["SLURM_LOCALID"]), int(env["LOCAL_WORLD_SIZE"])


def tensorflow(env):
    if "TF_CONFIG" not in env:
        return None
    config = json.loads(env["TF_CONFIG"])
    task = config["task"]
    tasks = [(kind, i) for kind in config["cluster"] for i in range(len(config["cluster"][kind]))]
    addresses = [a for kind in config["cluster"].values() for a in kind]
    assert len(set(addresses)) == len(tasks)
    return tasks.index((task["type"], task["index"])), len(tasks), int(env["LOCAL_RANK"]), int(env["LOCAL_WORLD_SIZE"])


def oneccl(env):
    assert env["CCL_PROCESS_LAUNCHER"] == "torchrun"
    return torch(env)


def paddle(env):
    if "PADDLE_MASTER" not in env:
        assert not [n for n in env if n.startswith("PADDLE_")]
        return None
    found = numbers(env, "PADDLE_GLOBAL_RANK", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_RANK", "PADDLE_LOCAL_SIZE")
    assert found[:3] == numbers(env, "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_RANK_IN_NODE")
    ends = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert ends[found[0]] == env["PADDLE_CURRENT_ENDPOINT"] and len(set(ends)) == found[1]
    assert env["PADDLE_NNODES"] == env["GROUP_WORLD_SIZE"]
    return found


def mindspore(env):
    if "MS_ROLE" not in env:
        assert not [n for n in env if n.startswith("MS_")]
        return None
    assert env["MS_ROLE"] == "MS_WORKER" and env["MS_SCHED_HOST"] and int(env["MS_SCHED_PORT"]) > 0
    return (*numbers(env, "MS_NODE_ID", "MS_WORKER_NUM"), int(env["LOCAL_RANK"]), int(env["LOCAL_WORLD_SIZE"]))


def mpi(env):
    """Each of the three families of names is unset, or complete and correct."""
    families = [numbers(env, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")] + [
        numbers(env, *(f"{p}_COMM_WORLD_{n}" for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))) for p in ("OMPI", "MV2")]
    assert len(set(families)) == 1
    return families[0]


READERS = [torch, lightning, accelerate, deepspeed, horovod, slurm_readers, jax, tensorflow, oneccl, paddle, mindspore, mpi]
ALWAYS = {torch, lightning, accelerate, deepspeed, horovod, oneccl}
# left by outer launchers, whose ranks are not the workers'
OUTER = {"PMI_RANK": "7", "PMI_SIZE": "9", "PMIX_RANK": "7", "OMPI_MCA_orte_hnp_uri": "0.0;tcp://127.0.0.1:1", "MASTER_ADDR": "stale",
         "MASTER_PORT": "1", "RANK": "8", "TORCHELASTIC_RUN_ID": "stale", "HOROVOD_RANK": "3", "JAX_LOCAL_DEVICE_IDS": ""}


def check(envs, sizes, answering):
    """Assert that every reader finds this worker or nothing, and that exactly those in `answering` find it."""
    truth = [(sum(sizes[:node]) + local, sum(sizes), local, n) for node, n in enumerate(sizes) for local in range(n)]
    assert len(envs) == len(truth)
    for env, wanted in zip(envs, truth):
        env["UNEVEN"] = "yes" if len(set(sizes)) > 1 else "no"
        found = {reader: reader(env) for reader in READERS}
        assert {reader: answer for reader, answer in found.items() if answer is not None} == {reader: wanted for reader in answering}
    for name in ("JAX_COORDINATOR_ADDRESS", "MASTER_PORT", "WORLD_SIZE"):
        assert len({env[name] for env in envs}) == 1


@pytest.mark.parametrize("options, more", [
    ((), set()),
    (("--framework=jax",), {jax}),
    (("--framework=paddle,mindspore,jax", "--tf"), {jax, tensorflow, paddle, mindspore}),
])
def test_nobody_is_misled_on_simulated_nodes(tmp_path, options, more):
    with Job("--simulate-nodes=3", "--nproc-per-node=2", *options, script(tmp_path, TELL), env=ours(**OUTER)) as job:
        assert job.wait() == 0, job.err
        check(told(tmp_path), [2, 2, 2], ALWAYS | more)
        job.assert_nothing_left()


def test_mpis_names_are_all_there_or_none(tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=2", "--mpi=pmi1", script(tmp_path, TELL), env=ours(**OUTER)) as job:
        assert job.wait() == 0, job.err
        check(told(tmp_path), [2, 2], ALWAYS | {mpi})


@pytest.mark.parametrize("options, more", [((), set()), (("--framework=paddle,mindspore", "--tf"), {tensorflow, paddle, mindspore})])
def test_nobody_is_misled_under_slurm(slurm, options, more):  # noqa: F811
    """Three nodes with different numbers of workers, in a step of one task per node."""
    worker = slurm.file("tell.py", textwrap.dedent(TELL))
    command = f'exec {DDRUN} --nproc-per-node=$((SLURM_NODEID + 1)) {" ".join(options)} {worker}'
    with slurm.popen(["srun", "-N3", "-n3", "--ntasks-per-node=1", "--mpi=pmi2", "bash", "-c", command],
                     env={k: v for k, v in OUTER.items() if not k.startswith("PMI")}) as job:
        assert job.wait(LIMIT).rc == 0, job.err
    check(told(slurm.place), [1, 2, 3], ALWAYS | {slurm_readers, jax} | more)
