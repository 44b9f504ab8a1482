"""JAX and TensorFlow's cluster under a real Slurm: each node has a network of its own."""

import os
import textwrap

import pytest

from support import BUILD, DDRUN, PYTHON, has_module, json_lines
from test_frameworks import JAX_PSUM, JAX_PYTHON, TF_SERVERS, environments
from test_slurm import LIMIT, TORCH, slurm  # noqa: F401

DDCTL = os.path.join(BUILD, "ddctl")

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def test_every_task_of_the_cluster_is_reached_from_the_chief(slurm):  # noqa: F811
    worker = slurm.file("servers.py", textwrap.dedent(TF_SERVERS))
    job = slurm.run("--nproc-per-node=2", "--tf", "--roles=chief:1,worker:*,ps:2", worker, "ps,worker", "0", slurm.file("here"))
    assert job.rc == 0, job.err
    envs = environments(job)
    assert len(envs) == 8 and len({e["TF_CONFIG"] for e in envs}) == 8
    assert [(e["SLURM_PROCID"], e["SLURM_NTASKS"]) for e in envs] == [(str(r), "8") for r in range(8)]


@pytest.mark.skipif(not has_module(JAX_PYTHON, "jax"), reason=f"no jax for {JAX_PYTHON} (JAX_PYTHON)")
def test_real_jax_needs_no_option(slurm):  # noqa: F811
    worker = slurm.file("psum.py", textwrap.dedent(JAX_PSUM))
    job = slurm.run("--nproc-per-node=1", worker, "nobody", env={"PYTHON_EXEC": JAX_PYTHON})
    assert job.rc == 0, job.err
    assert sorted(line for line in job.out.splitlines() if line.startswith("sum=")) == [f"sum=10 of 4 at {r}={r}" for r in range(4)]


@pytest.mark.parametrize("options, ranks", [(("-N2", "-n4", "--ntasks-per-node=2"), 4), (("-N3", "-n3", "--resv-ports=2"), 3)])
def test_ddp_is_started_by_srun_and_ddctl_env_alone(slurm, options, ranks):  # noqa: F811
    command = f'eval "$({DDCTL} env)"; exec {PYTHON} {TORCH} --ddp'
    with slurm.popen(["srun", *options, "bash", "-c", command]) as job:
        assert job.wait(LIMIT).rc == 0, job.err
    lines = json_lines(job.out)
    assert sorted((e["rank"], e["world"], e["reduced"], e["equal"]) for e in lines) == [
        (r, ranks, ranks * (ranks + 1) / 2, True) for r in range(ranks)]
    assert len({(e["master_addr"], e["master_port"]) for e in lines}) == 1
    assert not lines[0]["master_addr"].startswith("127.") and lines[0]["master_addr"][0].isdigit()


def test_a_batch_script_says_where_its_steps_meet(slurm):  # noqa: F811
    """The variables hold for the whole job: a step that runs ddctl env itself gets the same."""
    script = slurm.file("job.sh", textwrap.dedent(f"""\
        #!/bin/bash
        eval "$({DDCTL} env --whole-job)"
        echo "script ${{RANK-none}} $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"
        srun bash -c 'unset MASTER_ADDR MASTER_PORT; eval "$({DDCTL} env --whole-job)"; echo "task $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'
        """))
    out = slurm.file("out")
    with slurm.popen(["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", out, script]) as job:
        assert job.wait(LIMIT).rc == 0, job.err
    with open(out, encoding="utf-8") as f:
        lines = sorted(line.split() for line in f)
    assert [line[:3] for line in lines] == [["script", "none", "4"]] + [["task", str(r), "4"] for r in range(4)]
    assert len({tuple(line[3:]) for line in lines}) == 1, lines
