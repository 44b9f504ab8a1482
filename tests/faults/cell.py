"""One cell of the fault matrix: the fault, the job's reaction, and the job's end."""

import os

import pytest

from beds import BEDS, why_not_here
from faults import FAKETIME, WAYS
from table import FAULTS


def next_round(job, end, before, node):
    """Wait for the round that follows the fault, if the table has one; return the current round."""
    if not end.sizes:
        return before
    following = job.after(before[0]["round"], end.sizes)
    used = {line["restarts"] - before[0]["restarts"] for line in following}
    assert used <= set(end.restarts), following
    return following


def assert_end(job, end, before, way):
    """Assert the table's end of a job, from the fault, in the round `before`, on."""
    node = way.inject(job, before)
    rank = next((line["rank"] for line in before if line["node"] == node), None)
    last = next_round(job, end, before, node)
    if end.code == 0:
        job.release()
    job.wait_others(node)
    way.after(job, node)
    codes = job.wait()
    assert {code for other, code in codes.items() if other != node} == {end.code}, (codes, job.err())
    assert end.names.format(node=job.name(node), rank=rank) in job.err(), job.err()
    assert max(line["round"] for line in job.lines()) == last[0]["round"], job.lines()


def run_cell(fault, mode, bed):
    row, way = FAULTS[fault], WAYS[fault]
    reason = why_not_here(bed, mode)
    if fault == "clock step" and not os.path.exists(FAKETIME):
        reason = "libfaketime is not installed (Debian: faketime)"
    if reason:
        pytest.skip(reason)
    with BEDS[bed](mode, *row.options, prepare=way.before) as job:
        assert_end(job, row.ends[mode], job.after(-1, (3,)), way)
        job.assert_nothing_left()
