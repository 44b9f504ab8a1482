"""The files of a call of launch(), in its private directory: names, formats, and how they are written."""

import importlib
import json
import os
import pickle
from typing import Any, Dict, Optional

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


def write(directory: str, name: str, record: Dict[str, Any]) -> None:
    """Write a record of plain values, atomically. Objects of the user in it must already be pickled."""
    path = os.path.join(directory, name)
    with open(f"{path}.{os.getpid()}", "wb") as f:
        pickle.dump(record, f, protocol=4)
    os.replace(f.name, path)


def read(directory: str, name: str) -> Optional[Dict[str, Any]]:
    """Return the record, or None if there is none."""
    try:
        with open(os.path.join(directory, name), "rb") as f:
            record: Dict[str, Any] = pickle.load(f)
            return record
    except FileNotFoundError:
        return None


def read_report(directory: str) -> Dict[str, Any]:
    """Return ddrun's report, empty if there is none."""
    try:
        with open(os.path.join(directory, REPORT), encoding="utf-8") as f:
            report: Dict[str, Any] = json.load(f)
            return report
    except FileNotFoundError:
        return {}


def load(exception: Optional[bytes]) -> Optional[BaseException]:
    """Return the pickled exception, or None if this process cannot unpickle it."""
    try:
        loaded = pickle.loads(exception or b"")
    except Exception:
        return None
    return loaded if isinstance(loaded, BaseException) else None
