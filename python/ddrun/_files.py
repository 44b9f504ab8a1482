"""The files of a call of launch(), in its private directory: names, formats, and how they are written.

Where others can write to the parent of the directory, they can put a directory of theirs in its place. So a process opens it
once, checks its owner and mode, and reaches the files by the descriptor: pickles of others would run their code.
"""

import errno
import importlib
import json
import os
import pickle
from typing import IO, Any, Dict, Optional

CALL = "call"
REPORT = "report.json"
RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_run.py")


def pickler() -> Any:
    """Return cloudpickle if it is installed, since it also pickles functions of notebooks; else pickle."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return pickle


def result(rank: int) -> str:
    """Name of the file with the result of a rank: that of its last round."""
    return f"result-{rank}"


def open_directory(path: str) -> int:
    """Return a descriptor of the directory. PermissionError: others own it or can write to it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 != 0:
        os.close(fd)
        raise PermissionError(errno.EPERM, "not a private directory of this user", path)
    return fd


def _open(directory: int, name: str, mode: str) -> IO[bytes]:
    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600, dir_fd=directory)

    return open(name, mode, opener=opener)


def write(directory: int, name: str, record: Dict[str, Any]) -> None:
    """Write a record of plain values, atomically. Objects of the user in it must already be pickled."""
    part = f"{name}.{os.getpid()}"
    with _open(directory, part, "wb") as f:
        pickle.dump(record, f, protocol=4)
    os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)


def read(directory: int, name: str) -> Optional[Dict[str, Any]]:
    """Return the record, or None if there is none."""
    try:
        with _open(directory, name, "rb") as f:
            record: Dict[str, Any] = pickle.load(f)
            return record
    except FileNotFoundError:
        return None


def read_report(directory: int) -> Dict[str, Any]:
    """Return ddrun's report, empty if there is none."""
    try:
        with _open(directory, REPORT, "rb") as f:
            report: Dict[str, Any] = json.load(f)
            return report
    except FileNotFoundError:
        return {}


def remove_all(directory: int) -> None:
    """Remove the files."""
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except OSError:
            pass  # what a process of the job has put there


def load(exception: Optional[bytes]) -> Optional[BaseException]:
    """Return the pickled exception, or None if this process cannot unpickle it."""
    try:
        loaded = pickle.loads(exception or b"")
    except Exception:
        return None
    return loaded if isinstance(loaded, BaseException) else None
