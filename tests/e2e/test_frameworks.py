"""Frameworks other than PyTorch: what their workers are told, and the real ones where they are installed.

DDRUN_JAX_PYTHON  a Python with jax (0.10.2 was tried); by default the tests' own
"""

import json
import os
import subprocess
import textwrap

import pytest

from support import DDRUN, PYTHON, Job, clean_env

JAX_PYTHON = os.environ.get("DDRUN_JAX_PYTHON", PYTHON)
SIMULATED = ["--simulate-nodes=2", "--nproc-per-node=2"]

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def can_import(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def ours(**extra):
    env = clean_env(**extra)
    for name in ("TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_LOCAL_DEVICE_IDS"):
        if name not in extra:
            env.pop(name, None)
    return env


def script(tmp_path, text):
    path = tmp_path / "worker.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


PRINT_ENV = """
    import json, os
    print(json.dumps(dict(os.environ)) + "\\n", end="", flush=True)
"""


def environments(job):
    """What PRINT_ENV has written, by rank; of several rounds, in turn."""
    found = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda e: (int(e["DDRUN_ROUND"]), int(e["RANK"])))


def test_jax_has_one_coordinator_that_nobody_listens_on(tmp_path):
    with Job(*SIMULATED, "--framework=jax", script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 0, job.err
        envs = environments(job)
        assert len({e["JAX_COORDINATOR_ADDRESS"] for e in envs}) == 1
        assert envs[0]["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)[1] != envs[0]["MASTER_PORT"]
        assert [(e["SLURM_PROCID"], e["SLURM_LOCALID"], e["SLURM_NTASKS"]) for e in envs] == [
            ("0", "0", "4"), ("1", "1", "4"), ("2", "0", "4"), ("3", "1", "4")]
        job.assert_nothing_left()


def test_without_being_asked_ddrun_claims_no_slurm_and_keeps_the_users_coordinator(tmp_path):
    with Job("--nproc-per-node=2", script(tmp_path, PRINT_ENV), env=ours(JAX_COORDINATOR_ADDRESS="mine:7")) as job:
        assert job.wait() == 0, job.err
        for e in environments(job):
            assert e["JAX_COORDINATOR_ADDRESS"] == "mine:7"
            assert not [name for name in e if name.startswith("SLURM_")]


def test_the_coordinator_moves_with_every_round(tmp_path):
    worker = script(tmp_path, PRINT_ENV + """
    raise SystemExit(os.environ["DDRUN_ROUND"] == "0" and os.environ["RANK"] == "0")
    """)
    with Job(*SIMULATED, "--max-restarts=1", worker, env=ours()) as job:
        assert job.wait() == 0, job.err
        seen = {(e["DDRUN_ROUND"], e["JAX_COORDINATOR_ADDRESS"]) for e in environments(job)}
        assert len(seen) == 2 and len({address for _, address in seen}) == 2, seen
        job.assert_nothing_left()


def test_an_unknown_framework_is_refused():
    with Job("--framework=jaxx", "true", env=ours()) as job:
        assert job.wait() == 2
        assert "'jaxx'" in job.err and "jax" in job.err


JAX_PSUM = """
    import os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils
    jax.distributed.initialize()
    if os.environ["DDRUN_ROUND"] == "0" and os.environ["RANK"] == sys.argv[1]:
        os.abort()
    total = multihost_utils.process_allgather(jnp.asarray(float(jax.process_index() + 1))).sum()
    print(f"sum={total:.0f} of {jax.process_count()} at {jax.process_index()}={os.environ['RANK']}\\n", end="", flush=True)
    jax.distributed.shutdown()
"""


@pytest.mark.skipif(not can_import(JAX_PYTHON, "jax"), reason=f"no jax for {JAX_PYTHON} (DDRUN_JAX_PYTHON)")
@pytest.mark.parametrize("dies", ["nobody", "0", "3"])
def test_real_jax_initializes_without_arguments(tmp_path, dies):
    options = ["--max-restarts=1", "--shutdown-timeout=5s"] if dies != "nobody" else []
    with Job(*SIMULATED, "--framework=jax", *options, script(tmp_path, JAX_PSUM), dies,
             env=ours(PYTHON_EXEC=JAX_PYTHON)) as job:
        assert job.wait() == 0, job.err
        assert sorted(line for line in job.out.splitlines() if line.startswith("sum=")) == [
            f"sum=10 of 4 at {r}={r}" for r in range(4)]
        job.assert_nothing_left()
