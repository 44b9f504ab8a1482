"""The cells of the fault matrix (table.py) whose nodes are agents on one machine, and the matrix in docs/reliability.md."""

import os

import pytest

from cell import run_cell
from table import cells, markdown

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "reliability.md")


@pytest.mark.parametrize("fault, mode", cells("simulated"))
def test_job_ends_as_the_table_states(fault, mode):
    run_cell(fault, mode, "simulated")


def test_page_has_the_table_that_is_tested():
    with open(PAGE, encoding="utf-8") as f:
        assert markdown() in f.read(), "make it anew: python3 tests/faults/table.py"
