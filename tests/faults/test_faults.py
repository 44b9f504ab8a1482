"""Every cell of the fault matrix: the job ends as table.py states, names the victim, and leaves nothing behind."""

import os
import shutil

import pytest

from beds import BEDS, Slurm, why_not_here
from faults import FAKETIME, WAYS
from table import FAULTS, cells


@pytest.fixture(scope="session", autouse=True)
def _clusters():
    yield
    Slurm.down()


def assert_end(job, end, first, way):
    """From the fault to the end of the job; returns the node that the fault befell."""
    node = way.inject(job, first)
    rank = next((line["rank"] for line in first if line["node"] == node), None)
    if end.sizes:
        following = job.after(first[0]["round"], end.sizes)
        assert {line["restarts"] for line in following} <= set(end.restarts), following
    if end.code == 0:
        job.release()
    job.wait_others(node)
    way.after(job, node)
    codes = job.wait()
    assert {code for other, code in codes.items() if other != node} == {end.code}, (codes, job.err())
    assert end.names.format(node=job.name(node), rank=rank) in job.err(), job.err()
    if not end.sizes:
        assert {line["round"] for line in job.lines()} == {first[0]["round"]}, job.lines()
    return node


@pytest.mark.parametrize("fault, mode, bed", cells())
def test_job_ends_as_the_table_states(fault, mode, bed):
    reason = why_not_here(bed, mode)
    if fault == "clock step" and not os.path.exists(FAKETIME):
        reason = "libfaketime is not installed (Debian: faketime)"
    if reason:
        pytest.skip(reason)
    row, way = FAULTS[fault], WAYS[fault]
    with BEDS[bed](mode, *row.options, prepare=way.before) as job:
        assert_end(job, row.ends[mode], job.after(-1, (3,)), way)
        job.assert_nothing_left()
