"""--stage on the nodes of a real Slurm."""

import os

import pytest

from support import DDRUN, built_with, lines_with
from test_slurm import _can_cluster, _four_nodes, cluster, slurm  # noqa: F401

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("ZSTD"), reason="ddrun was built without libzstd (libzstd-dev)")]


def test_all_nodes_of_a_step_get_a_copy(slurm):  # noqa: F811
    os.makedirs(slurm.file("env/lib"))
    for i in range(300):
        slurm.file(f"env/lib/module{i}.py", f"x = {i}\n" * 50)
    path = slurm.file("env")
    done = slurm.run("--nproc-per-node=2", "--log-level=info", f"--stage={path}", "--stage-mount=no", "--no-python",
                     "sh", "-c", "echo copy $VIRTUAL_ENV; cat $VIRTUAL_ENV/lib/*.py | cksum", env={"VIRTUAL_ENV": path})
    assert done.rc == 0, done
    copies = {line.split()[1] for line in lines_with(done.out, "copy ")}
    assert len(copies) == 4 and path not in copies, done
    assert len({line for line in done.out.splitlines() if not line.startswith("copy ")}) == 1, done
    assert len(lines_with(done.err, "staged ")) == 4, done
    assert not any(os.path.exists(copy) for copy in copies)
