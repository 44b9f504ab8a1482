"""A launcher for Hydra (hydra-core): each job of a multirun is a ddrun job.

    python train.py --multirun hydra/launcher=ddrun hydra.launcher.nproc_per_node=4 lr=0.1,0.01

Every worker calls the function of @hydra.main with the configuration of its job. Rank 0 alone configures logging and writes
the directory .hydra. Needs hydra-core 1.2 or later and cloudpickle. Hydra imports this module at the start of each program.
"""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from hydra.core.config_store import ConfigStore  # type: ignore
from hydra.core.singleton import Singleton  # type: ignore
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals  # type: ignore
from hydra.plugins.launcher import Launcher  # type: ignore
from omegaconf import DictConfig, open_dict  # type: ignore

log = logging.getLogger(__name__)


@dataclass
class DdrunLauncherConf:
    """hydra.launcher.*: the arguments of ddrun.launch()."""

    _target_: str = "hydra_plugins.ddrun_launcher.DdrunLauncher"
    nproc_per_node: Optional[str] = None
    nnodes: Optional[str] = None
    max_restarts: int = 0
    env: Dict[str, str] = field(default_factory=dict)
    options: List[str] = field(default_factory=list)
    directory: Optional[str] = None


ConfigStore.instance().store(group="hydra/launcher", name="ddrun", node=DdrunLauncherConf, provider="ddrun")


def _work(context: Any, config: DictConfig, function: Any, singletons: Any) -> JobReturn:
    """Run the function in one worker. Raise its exception, so that ddrun stops the other workers."""
    setup_globals()
    Singleton.set_state(singletons)
    first = os.environ["RANK"] == "0"
    if not first:
        with open_dict(config):
            config.hydra.output_subdir = None
    done = run_job(hydra_context=context, task_function=function, config=config, job_dir_key="hydra.sweep.dir",
                   job_subdir_key="hydra.sweep.subdir", configure_logging=first)
    _ = done.return_value  # raises the exception of the function
    return done


class DdrunLauncher(Launcher):  # type: ignore
    """Runs the jobs one after the other. A failed job does not keep the next ones from running, as with Hydra's own launcher."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        self.config: Any = None
        self.function: Any = None
        self.context: Any = None

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        self.context, self.function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        log.info("Launching %d jobs with ddrun", len(job_overrides))
        return [self._job(initial_job_idx + i, list(overrides)) for i, overrides in enumerate(job_overrides)]

    def _job(self, number: int, overrides: List[str]) -> JobReturn:
        import ddrun

        log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
        config = self.context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        try:
            results = ddrun.launch(_work, (self.context, config, self.function, Singleton.get_state()), **self.arguments)
        except ddrun.LaunchError as error:
            failed = JobReturn(overrides=overrides, cfg=config, status=JobStatus.FAILED)
            failed.return_value = error
            return failed
        return results[0]
