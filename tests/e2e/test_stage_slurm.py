"""--stage on the nodes of a real Slurm."""

import os

import pytest

from support import DDRUN, built_with, lines_with, with_torch
from test_slurm import slurm  # noqa: F401
from test_slurm_recovery import Training, assert_resumed
from test_stage import mounts
from warm_venv import WarmVenv

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


def test_workers_of_all_nodes_find_the_copy_at_its_original_path(slurm):  # noqa: F811
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    os.makedirs(slurm.file("venv/lib"))
    for i in range(50):
        slurm.file(f"venv/lib/module{i}.py", f"x = {i}\n" * 50)
    path = slurm.file("venv")
    done = slurm.run("--nproc-per-node=2", "--log-level=info", f"--stage={path}", "--no-python", "sh", "-c",
                     f"echo copy $(stat -c %d:%i {path}); cat {path}/lib/*.py | cksum; touch {path}/new 2>/dev/null || echo read-only")
    assert done.rc == 0, done
    assert not lines_with(done.err, "variables point there"), done
    copies = {line.split()[1] for line in lines_with(done.out, "copy ")}
    assert len(copies) == 4 and f"{os.stat(path).st_dev}:{os.stat(path).st_ino}" not in copies, done
    assert done.out.count("read-only") == 8 and not os.path.exists(f"{path}/new"), done
    assert len({line for line in done.out.splitlines() if line[:1].isdigit()}) == 1, done


@with_torch
def test_a_warm_job_in_a_staged_environment_survives_a_kill_and_the_crash_of_the_first_node(slurm):  # noqa: F811
    if not mounts():
        pytest.skip("neither this user nor a user namespace may mount")
    venv = WarmVenv(slurm.place)
    slurm.env.update(venv.env)
    with Training(slurm, "--nnodes=2:4", "--max-restarts=1", "--log-level=info", *venv.options) as training:
        training.begun(4)
        slurm.cluster.kill("node3", venv.worker(slurm.cluster, "node3"))
        again = training.begun(8)[4:]
        assert sorted(line["rank"] for line in again) == [0, 1, 2, 3] and {line["restarts"] for line in again} == {1}
        slurm.cluster.crash("node1")
        begun = assert_resumed(training, 8, 3)
        assert {line["node"] for line in begun} == {"node2", "node3", "node4"}
        venv.assert_imported_once_on(["node1", "node2", "node3", "node4"], training.job.err)


def test_the_one_node_without_space_is_named(slurm):  # noqa: F811
    os.makedirs(slurm.file("env"))
    slurm.file("env/data", "x" * (2 << 20))
    small = slurm.file("small")
    os.makedirs(small)
    os.chmod(small, 0o1777)
    done = slurm.cluster.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "none", small], node="node3")
    assert done.rc == 0, done
    try:
        done = slurm.run("--nproc-per-node=1", f"--stage={slurm.file('env')}", f"--stage-dir={small}", "--no-python",
                         "sh", "-c", "echo started on $SLURMD_NODENAME")
    finally:
        slurm.cluster.run(["umount", small], node="node3")
    assert done.rc == 2 and "started on node3" not in done.out, done
    assert len(lines_with(done.err, "not enough space on ")) == len(lines_with(done.err, "not enough space on node3", small)) == 1, done
