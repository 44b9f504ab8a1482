"""Lightning, Accelerate and DeepSpeed, which read PyTorch's variables: real trainings, and the ends of their jobs.

DL_PYTHON  a Python with PyTorch and lightning (2.6.6 was tried), accelerate (1.15.0) and deepspeed (0.19.8); by default the
           tests' own
"""

import os
import signal
import textwrap

import pytest

from support import DDRUN, PYTHON, Job, has_module, json_lines, some_line, until
from test_frameworks import SIMULATED, ours, script
from test_slurm import slurm  # noqa: F401

DL_PYTHON = os.environ.get("DL_PYTHON", PYTHON)
FOUND = {name: has_module(DL_PYTHON, name) for name in ("lightning", "accelerate", "deepspeed")}

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def needs(name):
    return pytest.mark.skipif(not FOUND[name], reason=f"no {name} for {DL_PYTHON} (DL_PYTHON)")


BEGIN = """
    import json, logging, os, sys, time, warnings
    warnings.filterwarnings("ignore")
    import torch
    here = os.path.dirname(__file__)
    rank, round = int(os.environ["RANK"]), os.environ["DDRUN_ROUND"]
    how = sys.argv[1]
    torch.manual_seed(0)

    def say(model, **what):
        weight = torch.cat([p.detach().float().flatten() for p in model.parameters()]).sum()
        others = [torch.zeros_like(weight) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(others, weight)
        total = torch.tensor([rank + 1.0])
        torch.distributed.all_reduce(total)
        print(json.dumps({"rank": rank, "round": round, "total": total.item(), "equal": len(set(map(float, others))) == 1, **what})
              + "\\n", end="", flush=True)

    def mark():
        open(os.path.join(here, f"begun.{round}.{rank}"), "w").close()

    def go_on(step):
        if step > 2:
            mark()
        return step < 4 or how == "forever" and round == "0"

    def end():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads may abort a process whose interpreter ends
"""

LIGHTNING = BEGIN + """
    import lightning as L
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            print("step", index, flush=True)
            return self.layer(batch * (rank + 1)).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def data():
        step = 0
        while go_on(step):
            yield torch.ones(2, 4)
            step += 1
            if how == "forever" and round == "0":
                time.sleep(0.05)

    class Data(torch.utils.data.IterableDataset):
        def __iter__(self):
            return data()

    trainer = L.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
                        strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(Data(), batch_size=None))
    say(model, found=[trainer.global_rank, trainer.world_size, trainer.local_rank, type(trainer.strategy.cluster_environment).__name__])
    end()
"""

ACCELERATE = BEGIN + """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    step = 0
    while go_on(step):
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(2, 4) * (rank + 1)).mean())
        optimizer.step()
        step += 1
    say(model, found=[accelerator.process_index, accelerator.num_processes, accelerator.local_process_index,
                      str(accelerator.distributed_type).rsplit(".")[-1]])
    end()
"""

DEEPSPEED = BEGIN + """
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled for a minute
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(8, 8)
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config={
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": True}})
    step = 0
    while go_on(step):
        engine.backward(engine(torch.ones(2, 8, dtype=torch.bfloat16) * (rank + 1)).sum())
        engine.step()
        step += 1
    say(engine.module, found=[deepspeed.comm.get_rank(), deepspeed.comm.get_world_size(), deepspeed.comm.get_local_rank(),
                              deepspeed.get_accelerator().device_name()])
    end()
"""

TRAININGS = [pytest.param(LIGHTNING, "TorchElasticEnvironment", marks=needs("lightning"), id="lightning"),
             pytest.param(ACCELERATE, "MULTI_CPU", marks=needs("accelerate"), id="accelerate"),
             pytest.param(DEEPSPEED, "cpu", marks=needs("deepspeed"), id="deepspeed")]


def dl_env(tmp_path, **more):
    """Return an environment in which the frameworks write their caches to tmp_path."""
    return ours(PYTHON_EXEC=DL_PYTHON, TORCH_EXTENSIONS_DIR=str(tmp_path), HF_HOME=str(tmp_path), TRITON_CACHE_DIR=str(tmp_path),
                PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", **more)


def check(out, kind, round="0", world=4):
    said = sorted((e for e in json_lines(out) if e["round"] == round), key=lambda e: e["rank"])
    assert [(e["found"], e["total"], e["equal"]) for e in said] == [
        ([r, world, r % 2, kind], world * (world + 1) / 2, True) for r in range(world)]


def all_have_begun(tmp_path, job):
    until(lambda: job.p.poll() is not None or len(list(tmp_path.glob("begun.0.*"))) == 4, say="the training")
    assert job.p.poll() is None, job.p.communicate()[1]


@pytest.mark.parametrize("training, kind", TRAININGS)
def test_training_on_two_nodes(tmp_path, training, kind):
    with Job(*SIMULATED, script(tmp_path, training), "once", env=dl_env(tmp_path), cwd=tmp_path) as job:
        assert job.wait() == 0, job.err
        check(job.out, kind)
        job.assert_nothing_left()


@pytest.mark.parametrize("training, kind", [pytest.param(*p.values, marks=[*p.marks, *[pytest.mark.large] * (p.id != "lightning")], id=p.id)
                                            for p in TRAININGS])
def test_training_in_workers_that_are_forked_after_the_import(tmp_path, training, kind):
    module = next(name for name in FOUND if f"import {name}" in training or f"from {name}" in training)
    with Job(*SIMULATED, f"--warm={module}", "--heartbeat=60s", script(tmp_path, training), "once", env=dl_env(tmp_path), cwd=tmp_path) as job:
        assert job.wait() == 0, job.err
        check(job.out, kind)
        assert not some_line(job.err, "--warm"), job.err  # each of its texts tells what is not warm
        job.assert_nothing_left()


@pytest.mark.large
@pytest.mark.parametrize("training, kind", TRAININGS)
def test_a_killed_rank_makes_all_begin_again(tmp_path, training, kind):
    with Job(*SIMULATED, "--max-restarts=1", "--shutdown-timeout=5s", script(tmp_path, training), "forever", env=dl_env(tmp_path),
             cwd=tmp_path) as job:
        all_have_begun(tmp_path, job)
        os.kill(worker(job, 3), signal.SIGKILL)
        assert job.wait() == 0, job.err
        check(job.out, kind, "1")
        job.assert_nothing_left()


def worker(job, rank):
    for pid in job.workers():
        with open(f"/proc/{pid}/environ", "rb") as f:
            if f"RANK={rank}" in f.read().decode().split("\0"):
                return pid
    raise AssertionError(f"no worker {rank}")


@pytest.mark.large
@needs("lightning")
def test_lightning_ends_in_time_when_ddrun_is_told_to(tmp_path):
    """Its signal handler communicates between the ranks, and hangs if the signal meets a rank in another collective."""
    with Job(*SIMULATED, "--shutdown-timeout=5s", script(tmp_path, LIGHTNING), "forever", env=dl_env(tmp_path), cwd=tmp_path) as job:
        all_have_begun(tmp_path, job)
        os.kill(job.p.pid, signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM, job.err
        job.assert_nothing_left()


@pytest.mark.large
@needs("lightning")
def test_lightning_that_heard_a_signal_in_one_rank_alone_is_ended(tmp_path):
    """The other ranks wait for that rank, or fail."""
    with Job(*SIMULATED, "--hang-timeout=40s", "--hang-sign=output", "--on-hang=true", "--shutdown-timeout=3s",
             script(tmp_path, LIGHTNING), "forever", env=dl_env(tmp_path), cwd=tmp_path) as job:
        all_have_begun(tmp_path, job)
        os.kill(worker(job, 1), signal.SIGTERM)
        assert job.wait() != 0
        job.assert_nothing_left()


@pytest.mark.large
@pytest.mark.parametrize("training, kind", TRAININGS)
def test_training_under_slurm(slurm, training, kind):  # noqa: F811
    program = slurm.file("training.py", textwrap.dedent(training))
    env = {name: slurm.place for name in ("TORCH_EXTENSIONS_DIR", "HF_HOME", "TRITON_CACHE_DIR")}
    job = slurm.run("--nproc-per-node=2", program, "once", srun=("-N2", "-n2", "--ntasks-per-node=1"),
                    env={"PYTHON_EXEC": DL_PYTHON, "PYTHONDONTWRITEBYTECODE": "1", **env})
    assert job.rc == 0, job.err
    check(job.out, kind)
