"""ddrun for Python: run a function on all workers of a job, and communicate with the other workers from it.

- launch() runs a function or a script under ddrun and returns the results.
- init() returns this worker's handle: ranks, barriers, exchanges, keys and values, events.
- ddrun.torchx, a module of its own, is a component for TorchX.
- hosts() returns the nodes of the job; find_program() the paths of the programs.

Requires only the standard library. Uses the programs installed with this package, otherwise those in PATH.
"""

from ._errors import Error, LaunchError, LibraryError, RoundOver, Timeout, WorkerError
from ._launch import launch
from ._library import Event, Group, Worker, init, step, step_resume, step_wait
from ._programs import find_program, hosts

__version__ = "0.1.0"
__all__ = ["Error", "Event", "Group", "LaunchError", "LibraryError", "RoundOver", "Timeout", "Worker", "WorkerError",
           "find_program", "hosts", "init", "launch", "step", "step_resume", "step_wait"]
