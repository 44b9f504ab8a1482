"""MPI programs under a real Slurm: each node has a network of its own."""

import os
import shutil
import subprocess

import pytest

from support import BUILD, DDRUN, HERE
from test_mpi import KINDS, built, ranks, world  # noqa: F401
from test_slurm import slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_two_nodes_are_one_world_and_one_abort_ends_it(slurm, built, kind):  # noqa: F811
    sum_ = shutil.copy(built(kind), slurm.file("sum"))
    job = slurm.run("--mpi=auto", "--nproc-per-node=2", sum_, "abort", "3", srun=("-N2",))
    assert job.rc == 42, job.err
    assert ranks(job) == world(2, 2)


def finalize_together(slurm, kind):  # noqa: F811
    """MPICH 4.0's own MPI_Finalize may hang over UCX's TCP, under any launcher (docs/mpi.md): with ddrun's barrier before it."""
    if kind != "mpich":
        return ()
    library = slurm.file("libmpifinalize.so")
    top = os.path.join(HERE, "..", "..")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{top}/include", "-o", library, f"{top}/examples/mpi_finalize.c",
                    f"{BUILD}/libddrun-pic.a"], check=True)
    return (f"--env=LD_PRELOAD={library}",)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_two_nodes_finalize(slurm, built, kind):  # noqa: F811
    sum_ = shutil.copy(built(kind), slurm.file("sum"))
    job = slurm.run("--mpi=auto", "--nproc-per-node=2", *finalize_together(slurm, kind), sum_, srun=("-N2",))
    assert job.rc == 0, job.err
    assert ranks(job) == world(2, 2)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_two_nodes_start_again(slurm, built, kind):  # noqa: F811
    sum_ = shutil.copy(built(kind), slurm.file("sum"))
    job = slurm.run("--mpi=auto", "--nproc-per-node=2", "--max-restarts=1", *finalize_together(slurm, kind), sum_,
                    "before", "kill", "3", "1", srun=("-N2",))
    assert job.rc == 0, job.err
    assert ranks(job) == sorted(world(2, 2) + world(2, 2, 1))


@pytest.mark.parametrize("outer", ["pmi2", "pmix"])
def test_what_slurm_offers_the_agent_does_not_reach_its_ranks(slurm, built, outer):  # noqa: F811
    sum_ = shutil.copy(built("openmpi"), slurm.file("sum"))
    job = slurm.run("--mpi=pmix", "--nproc-per-node=2", sum_, srun=("-N2", f"--mpi={outer}"))
    if job.rc != 0 and "MPI plugin" in job.err:
        pytest.skip(f"this Slurm has no --mpi={outer}")
    assert job.rc == 0, job.err
    assert ranks(job) == world(2, 2)
