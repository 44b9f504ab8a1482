"""TorchX, submitit, Hydra, Lightning and Accelerate with ddrun: the real packages.

PLUGIN_PYTHON  a Python with torchx (0.7.0 was tried), submitit (1.5.4), hydra-core (1.3.8; with cloudpickle, as of submitit), lightning (2.6.6) and accelerate (1.15.0); by default
               the tests' own
"""

import glob
import os
import pickle
import re
import textwrap

import pytest

from support import DDRUN, LIMIT, PYTHON, Job, has_module, json_lines
from test_python import package_env
from test_slurm import slurm, until  # noqa: F401

PLUGIN_PYTHON = os.environ.get("PLUGIN_PYTHON", PYTHON)
FOUND = {name: has_module(PLUGIN_PYTHON, name) for name in ("torchx", "submitit", "hydra", "lightning", "accelerate")}

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def needs(name):
    return pytest.mark.skipif(not FOUND[name], reason=f"no {name} for {PLUGIN_PYTHON} (PLUGIN_PYTHON)")


def python(tmp_path, *words, text=None):
    """Run PLUGIN_PYTHON with these words, or this text as a script, in an empty directory; assert that nothing is left."""
    if text is not None:
        (tmp_path / "main.py").write_text(textwrap.dedent(text))
        words = ("main.py", *words)
    env = package_env(PYTHON_EXEC=PLUGIN_PYTHON, PYTHONWARNINGS="ignore")
    with Job(*words, program=PLUGIN_PYTHON, env=env, cwd=tmp_path) as job:
        assert job.wait() == 0, job.out + job.err
        job.assert_nothing_left()
    return job


RANKS = """
    import os, sys
    print("RANK=" + os.environ["RANK"], "WORLD_SIZE=" + os.environ["WORLD_SIZE"], sys.argv[1:], flush=True)
"""


@needs("torchx")
@pytest.mark.parametrize("nodes", [1, 2])
def test_torchx_runs_its_component_with_one_ddrun_per_node(tmp_path, nodes):
    (tmp_path / "train.py").write_text(textwrap.dedent(RANKS))
    component = python(tmp_path, "-m", "ddrun.torchx").out.strip()
    torchx = "from torchx.cli.main import main; main()"
    job = python(tmp_path, "-c", torchx, "run", "-s", "local_cwd", "-cfg", f"log_dir={tmp_path}/logs", f"{component}:ddp",
                 "-j", f"{nodes}x2", "--script", "train.py", "--", "--name", "two words")
    # torchx also shows the logs, but may end before it has copied their last lines to the file that it shows
    seen = sorted(line for path in glob.glob(f"{tmp_path}/logs/torchx/*/train/*/stdout.log") for line in open(path, encoding="utf-8"))
    assert seen == [f"RANK={rank} WORLD_SIZE={2 * nodes} ['--name', 'two words']\n" for rank in range(2 * nodes)], job.err


def slurm_env():
    """Return the variables with which a job finds the package and its programs."""
    env = package_env(PYTHON_EXEC=PLUGIN_PYTHON)
    return {name: env[name] for name in ("PYTHONPATH", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHON_EXEC")}


@needs("torchx")
@pytest.mark.parametrize("size", ["4", "x", "2xgpu", "1x2x3"])
def test_a_size_that_torchx_cannot_read_is_named(tmp_path, size):
    job = python(tmp_path, text=f"""
    import ddrun.torchx
    try:
        ddrun.torchx.ddp(script="train.py", j="{size}")
    except ValueError as e:
        print(e)
    """)
    assert job.out == f"invalid -j {size}: expected NODESxWORKERS_PER_NODE, for example 2x4\n", job.err


@needs("torchx")
def test_torchx_submits_its_component_to_slurm(slurm):  # noqa: F811
    slurm.file("train.py", textwrap.dedent(RANKS))
    component = os.path.join(package_env()["PYTHONPATH"], "ddrun", "torchx.py")
    words = ["run", "-s", "slurm", "--workspace=", "-cfg", "partition=main", f"{component}:ddp", "-j", "2x2", "--cpu", "1", "--memMB",
             "100", "--script", "train.py"]
    env = {"USER": "alice", **slurm_env()}
    with slurm.popen([PLUGIN_PYTHON, "-c", "from torchx.cli.main import main; main()", *words], env=env) as job:
        done = job.wait(LIMIT)  # it fails afterwards, since the cluster has no accounting for its sacct
    number = re.search(r"slurm://torchx/(\d+)", done.out)
    assert number, done.err
    until(lambda: not slurm.cluster.scheduler.jobs(), LIMIT, "end of the job")
    for node in range(2):
        with open(slurm.file(f"slurm-{number.group(1)}-train-{node}.out"), encoding="utf-8") as f:
            assert sorted(f.read().splitlines()) == [f"RANK={2 * node + i} WORLD_SIZE=4 []" for i in range(2)]


SUBMITIT = """
    import ddrun, json, os, submitit, sys

    def train(x):
        worker = ddrun.init()
        return [worker.rank, worker.size, worker.node_rank, x]

    def submit(executor, *options):
        return executor.submit(ddrun.launch, train, (3,), nproc_per_node=2, options=options)
"""


@needs("submitit")
def test_submitit_runs_launch_as_any_function(tmp_path):
    job = python(tmp_path, text=SUBMITIT + """
    executor = submitit.LocalExecutor("logs")
    executor.update_parameters(timeout_min=5)
    print(json.dumps({"results": submit(executor, "--simulate-nodes=2").result()}))
    """)
    assert json_lines(job.out)[-1]["results"] == [[rank, 4, rank // 2, 3] for rank in range(4)]


@needs("submitit")
def test_submitit_without_srun_runs_launch_on_all_nodes_of_a_slurm_job(slurm):  # noqa: F811
    text = textwrap.dedent(SUBMITIT + """
    executor = submitit.SlurmExecutor("logs")
    executor.update_parameters(nodes=2, ntasks_per_node=1, time=5, use_srun=False)
    job = submit(executor)
    print(job.job_id)
    """)
    with slurm.popen([PLUGIN_PYTHON, slurm.file("submit.py", text)], env=slurm_env()) as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err
    logs = slurm.file("logs")
    path = os.path.join(logs, f"{done.out.split()[-1]}_0_result.pkl")
    until(lambda: os.path.exists(path), LIMIT, lambda: f"result: {[open(f).read() for f in glob.glob(logs + '/*log*')]}")
    with open(path, "rb") as f:
        assert pickle.load(f) == ("success", [[rank, 4, rank // 2, 3] for rank in range(4)])


HYDRA = """
    import json, logging, os, hydra

    @hydra.main(version_base=None, config_path=None, config_name=None)
    def main(cfg):
        logging.getLogger("train").info("rank %s, lr %s", os.environ["RANK"], cfg.lr)
        print(json.dumps({"seen": [int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), cfg.lr]}), flush=True)
        if cfg.get("fails") == [int(os.environ["RANK"]), cfg.lr]:
            raise ValueError("loss is nan")

    if __name__ == "__main__":
        main()
"""
MULTIRUN = ["--multirun", "hydra/launcher=ddrun", "hydra.launcher.nproc_per_node=2", "hydra.sweep.dir=sweep"]


def hydra(tmp_path, *words):
    """Run the program in tmp_path; return its exit code, its output and what the ranks have printed."""
    (tmp_path / "main.py").write_text(textwrap.dedent(HYDRA))
    with Job("main.py", *words, program=PLUGIN_PYTHON, env=package_env(PYTHON_EXEC=PLUGIN_PYTHON), cwd=tmp_path) as job:
        code = job.wait()
        job.assert_nothing_left()
    return code, job.out + job.err, sorted(line["seen"] for line in json_lines(job.out))


@needs("hydra")
def test_hydra_runs_each_job_of_a_multirun_on_all_workers(tmp_path):
    code, said, seen = hydra(tmp_path, *MULTIRUN, "hydra.launcher.options=['--simulate-nodes=2']", "+lr=1,2")
    assert code == 0, said
    assert seen == [[rank, 4, lr] for rank in range(4) for lr in (1, 2)]
    for number, lr in enumerate((1, 2)):
        job = tmp_path / "sweep" / str(number)
        assert (job / "main.log").read_text().count("rank 0, lr") == 1 and "rank 1" not in (job / "main.log").read_text()
        assert (job / ".hydra" / "overrides.yaml").read_text() == f"- +lr={lr}\n"


@needs("hydra")
def test_hydra_runs_the_jobs_after_a_failed_one_and_names_the_failed_rank(tmp_path):
    code, said, seen = hydra(tmp_path, *MULTIRUN, "+lr=1,2", "+fails=[1,1]")
    assert code == 1 and "rank 1 on " in said and "ValueError: loss is nan" in said, said
    assert [1, 2, 1] in seen and [[rank, lr] for rank, _, lr in seen if lr == 2] == [[0, 2], [1, 2]], said


@needs("hydra")
def test_hydra_programs_are_workers_with_one_directory(tmp_path):
    (tmp_path / "main.py").write_text(textwrap.dedent(HYDRA))
    words = ["--nproc-per-node=2", "main.py", "+lr=1", "hydra.run.dir=outputs/${oc.env:TORCHELASTIC_RUN_ID}"]
    with Job(*words, env=package_env(PYTHON_EXEC=PLUGIN_PYTHON), cwd=tmp_path) as job:
        assert job.wait() == 0, job.err
    assert sorted(line["seen"] for line in json_lines(job.out)) == [[0, 2, 1], [1, 2, 1]]
    assert len(os.listdir(tmp_path / "outputs")) == 1


LAUNCHED = {"accelerate": """
    import ddrun, json

    def found():
        from accelerate import PartialState
        state = PartialState(cpu=True)
        seen = [state.process_index, state.num_processes, state.local_process_index]
        state.wait_for_everyone()
        state.destroy_process_group()
        return seen
""", "lightning": """
    import ddrun, json, os

    def found():
        from lightning.fabric import Fabric
        fabric = Fabric(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
                        strategy="ddp")
        fabric.launch()
        assert type(fabric.strategy.cluster_environment).__name__ == "TorchElasticEnvironment"
        seen = [fabric.global_rank, fabric.world_size, fabric.local_rank]
        fabric.barrier()
        import torch
        torch.distributed.destroy_process_group()
        return seen
"""}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in LAUNCHED])
def test_a_launched_function_is_a_worker_for(tmp_path, name):
    job = python(tmp_path, text=LAUNCHED[name] + """
    if __name__ == "__main__":
        print(json.dumps({"results": ddrun.launch(found, nproc_per_node=2)}))
    """)
    assert json_lines(job.out)[-1]["results"] == [[rank, 2, rank] for rank in range(2)]
