"""The cells of the fault matrix (table.py) on a Slurm cluster in namespaces."""

import pytest

from beds import Slurm
from cell import run_cell
from table import cells


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    yield
    Slurm.down()


@pytest.mark.parametrize("fault, mode", cells("slurm"))
def test_job_ends_as_the_table_states(fault, mode):
    run_cell(fault, mode, "slurm")
