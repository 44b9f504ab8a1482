"""pytest fixtures for cluster.py. A test that uses one is skipped, with the reason, where the cluster cannot be made."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from cluster import Options, up, why_not  # noqa: E402


def shared():
    """Return the directories that all nodes must see even if they are below one that each node has for itself."""
    python = os.environ.get("DDRUN_PYTHON", sys.executable)
    prefixes = subprocess.run([python, "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"],
                              capture_output=True, text=True, check=True).stdout.split("\n")
    places = [os.path.dirname(os.path.dirname(HERE)), os.environ.get("DDRUN_BUILD", ""), *prefixes]
    return [os.path.abspath(place) for place in places if place]


@contextmanager
def running(options):
    made = up(options)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def _can_cluster():
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def _four_nodes(_can_cluster):
    with running(Options(share=shared())) as cluster:
        yield cluster


@pytest.fixture
def cluster(_four_nodes):
    """Return four idle nodes without processes of jobs; all tests of the session share the cluster."""
    _four_nodes.reset()
    return _four_nodes


@pytest.fixture
def new_cluster(_can_cluster):
    """Yield new_cluster(nodes=2, family=6, ...), which starts a cluster for one test (see Options)."""
    started = []

    def start(**options):
        made = up(Options(share=shared() + options.pop("share", []), **options))
        started.append(made)
        return made

    yield start
    for made in started:
        made.down()


@pytest.fixture(scope="session")
def _pbs_nodes():
    reason = why_not("openpbs")
    if reason:
        pytest.skip(reason)
    with running(Options(scheduler="openpbs", nodes=3, domain="cluster.test", share=shared())) as made:
        yield made


@pytest.fixture
def pbs_cluster(_pbs_nodes):
    """Return three nodes with OpenPBS, as `cluster` returns four with Slurm."""
    _pbs_nodes.reset()
    return _pbs_nodes


@pytest.fixture(scope="session")
def _sge_nodes():
    reason = why_not("gridengine")
    if reason:
        pytest.skip(reason)
    with running(Options(scheduler="gridengine", nodes=3, share=shared())) as made:
        yield made


@pytest.fixture
def sge_cluster(_sge_nodes):
    """Return three nodes with Grid Engine."""
    _sge_nodes.reset()
    return _sge_nodes
