"""The exceptions of this package."""

import os
from typing import Any, Dict, Optional


class Error(Exception):
    """Any failure that this package reports."""


class LaunchError(Error):
    """A job failed but no worker did: a wrong option, missing nodes, a time limit.

    exit_code: exit code of ddrun; 0 if a worker exited without a result
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WorkerError(LaunchError):
    """A worker failed; if several did, this is the first failure. `__cause__` is the exception of a function, if it could be transferred.

    rank, local_rank: ranks of the worker
    node: name of its node
    exit_code: its exit code; 128 + number for a signal
    signal: name of the signal that ended it, such as "SIGKILL", or None
    traceback: text of its traceback, or "" if there is none
    report: ddrun's report as docs/report.md describes it
    """

    def __init__(self, message: str, failure: Dict[str, Any], traceback: str, report: Dict[str, Any]) -> None:
        super().__init__(message, int(failure["code"]))
        self.rank = int(failure["rank"])
        self.local_rank = int(failure["local_rank"])
        self.node = str(failure["node"])
        self.signal: Optional[str] = failure.get("signal")
        self.traceback = traceback
        self.report = report

    def __reduce__(self) -> Any:
        failure = {"code": self.exit_code, "rank": self.rank, "local_rank": self.local_rank, "node": self.node,
                   "signal": self.signal}
        return WorkerError, (str(self), failure, self.traceback, self.report)


class LibraryError(Error, OSError):
    """A call of libddrun failed. `errno` is its code, a positive number of the module errno."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code, message or os.strerror(code))


class Timeout(LibraryError, TimeoutError):
    """The time limit of a call has passed (ETIMEDOUT)."""


class RoundOver(LibraryError):
    """The round has ended, because a worker failed or the job is over (ECANCELED): the worker should exit."""
