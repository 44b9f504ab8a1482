"""A TorchX component that starts a script with ddrun: dist.ddp with ddrun in place of torchrun.

    torchx run -s slurm "$(python -m ddrun.torchx):ddp" -j 2x4 --script train.py -- --epochs 3

TorchX loads a component from a file. `python -m ddrun.torchx` prints the path of this one; TorchX need not be installed.
"""

import shlex
from pathlib import Path
from typing import Dict, Optional

if __name__ == "__main__":
    print(__file__)
    raise SystemExit(0)

import torchx  # type: ignore # noqa: E402
import torchx.specs as specs  # type: ignore # noqa: E402


def ddp(*script_args: str, script: Optional[str] = None, m: Optional[str] = None, image: str = torchx.IMAGE,
        name: str = "ddrun", h: Optional[str] = None, cpu: int = 2, gpu: int = 0, memMB: int = 1024, j: str = "1x1",
        options: str = "", env: Optional[Dict[str, str]] = None, max_retries: int = 0) -> specs.AppDef:
    """
    Distributed training under ddrun: one replica per node, ddrun starts its workers.

    Args:
        script_args: arguments of the script or module
        script: script or program to run
        m: Python module to run instead of a script
        image: image (e.g. docker), or working directory
        name: name of the job
        h: a registered named resource (instead of cpu, gpu, memMB)
        cpu: number of CPUs per node
        gpu: number of GPUs per node
        memMB: memory in MB per node
        j: NODESxWORKERS_PER_NODE
        options: further options of ddrun, as in a shell
        env: environment variables (e.g. ENV1=v1,ENV2=v2)
        max_retries: number of retries by the scheduler
    """
    if (script is None) == (m is None):
        raise ValueError("expected either --script or -m")
    try:
        nodes, workers = map(int, j.split("x"))
    except ValueError:
        raise ValueError(f"invalid -j {j}: expected NODESxWORKERS_PER_NODE, for example 2x4") from None
    words = [f"--nproc-per-node={workers}", *shlex.split(options), *(["-m", m] if m else [str(script)]), *script_args]
    command = "exec ddrun " + shlex.join(words)
    if nodes > 1:
        # The scheduler sets the variable with the host of replica 0; some do not set it on that host itself.
        first = f"$${{{specs.macros.rank0_env}:=localhost}}"
        place = f'--nnodes={nodes} --node-rank={specs.macros.replica_id} --master-addr="{first}" --rdzv-id={specs.macros.app_id}'
        command = f"exec ddrun {place} {shlex.join(words)}"
    return specs.AppDef(name=name, roles=[specs.Role(
        name=m.rpartition(".")[2] if m else Path(str(script)).stem, image=image, entrypoint="sh", args=["-c", command],
        num_replicas=nodes, resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h), env=dict(env or {}),
        max_retries=max_retries)])
