"""Horovod under a real Slurm: each node has a network of its own."""

import os
import shutil
import textwrap

import pytest

from support import DDRUN, program
from test_horovod import SITE, TRAIN, expected, real
from test_slurm import slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def test_workers_of_four_nodes_find_each_other(slurm):  # noqa: F811
    with open(program("hvd_client.py"), encoding="utf-8") as f:
        client = slurm.file("hvd_client.py", f.read())
    job = slurm.run("--nproc-per-node=2", client, "bootstrap")
    assert job.rc == 0, job.err
    assert len([line for line in job.out.splitlines() if "requests in" in line]) == 8


@pytest.mark.large
@pytest.mark.parametrize("nodes, each", [(4, 1), (2, 2)])
@real
def test_real_horovod_on_the_nodes_of_a_step(slurm, nodes, each):  # noqa: F811
    site = shutil.copytree(SITE, slurm.file("site"))  # the user of the job cannot read root's cache
    worker = slurm.file("train.py", textwrap.dedent(TRAIN))
    job = slurm.run(f"--nproc-per-node={each}", worker, "nobody", srun=(f"-N{nodes}",), env={"PYTHONPATH": site})
    assert job.rc == 0, job.err
    assert sorted(line for line in job.out.splitlines() if " of 4: " in line) == expected()
