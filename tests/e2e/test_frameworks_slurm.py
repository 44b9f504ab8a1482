"""JAX and TensorFlow's cluster under a real Slurm: nodes with networks of their own."""

import os
import textwrap

import pytest

from support import DDRUN
from test_frameworks import JAX_PSUM, JAX_PYTHON, TF_SERVERS, can_import, environments
from test_slurm import _can_cluster, _four_nodes, cluster, slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def test_every_task_of_the_cluster_is_reached_from_the_chief(slurm):  # noqa: F811
    worker = slurm.file("servers.py", textwrap.dedent(TF_SERVERS))
    job = slurm.run("--nproc-per-node=2", "--tf", "--roles=chief:1,worker:*,ps:2", worker, "ps,worker", "0")
    assert job.rc == 0, job.err
    envs = environments(job)
    assert len(envs) == 8 and len({e["TF_CONFIG"] for e in envs}) == 8
    assert [(e["SLURM_PROCID"], e["SLURM_NTASKS"]) for e in envs] == [(str(r), "8") for r in range(8)]


@pytest.mark.skipif(not can_import(JAX_PYTHON, "jax"), reason=f"no jax for {JAX_PYTHON} (JAX_PYTHON)")
def test_real_jax_needs_no_option(slurm):  # noqa: F811
    worker = slurm.file("psum.py", textwrap.dedent(JAX_PSUM))
    job = slurm.run("--nproc-per-node=1", worker, "nobody", env={"PYTHON_EXEC": JAX_PYTHON})
    assert job.rc == 0, job.err
    assert sorted(line for line in job.out.splitlines() if line.startswith("sum=")) == [f"sum=10 of 4 at {r}={r}" for r in range(4)]
