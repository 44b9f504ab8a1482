"""--collect on the nodes of a real Slurm."""

import os

import pytest

from support import DDRUN, built_with
from test_slurm import slurm  # noqa: F401

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")]


def test_files_of_all_nodes_of_a_step_come_back(slurm):  # noqa: F811
    local, out = slurm.file("local"), slurm.file("out")
    for d in (local, out):
        os.mkdir(d)
        os.chmod(d, 0o777)
    done = slurm.run("--nproc-per-node=1", f"--collect={local}/$SLURM_NODEID/*:{out}", "--no-python",
                     "sh", "-c", f"mkdir -p {local}/$SLURM_NODEID; echo rank $RANK >{local}/$SLURM_NODEID/state; "
                     f"until [ $(ls {local}/*/state | wc -l) = 4 ]; do sleep 0.1; done; exit $RANK")
    assert done.rc in (1, 2, 3), done
    found = sorted(os.path.join(d, f) for d, _, files in os.walk(out) for f in files)
    assert len(found) == 4 and {os.path.basename(f) for f in found} == {"state"}, (found, done.err)
    assert len({os.path.dirname(f) for f in found}) == 4, found
