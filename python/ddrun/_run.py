"""The program of each worker of launch(): call the function and write its result.

_run.py DIRECTORY
"""

import atexit
import os
import pickle
import runpy
import sys
import threading
import traceback
import types
from typing import Any, Dict


def prepare(call: Dict[str, Any]) -> None:
    """Set sys.path and sys.argv, and import the caller's __main__, as multiprocessing's "spawn" does."""
    sys.path[:] = call["path"]
    sys.argv[:] = call["argv"]
    if call["main"] is not None:
        main = types.ModuleType("__mp_main__")
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main
        main.__dict__.update(runpy.run_path(call["main"], run_name="__mp_main__"))


def outcome(call: Dict[str, Any]) -> Dict[str, Any]:
    """Call the function; return its result, or its exception and the traceback without the frame of this file."""
    from ddrun import _files

    dumps = _files.pickler().dumps
    try:
        prepare(call)
        function, args = pickle.loads(call["call"])
        return {"value": dumps(function(*args))}
    except Exception as error:
        traces = error.__traceback__.tb_next if error.__traceback__ is not None else None
        record: Dict[str, Any] = {"traceback": "".join(traceback.format_exception(type(error), error, traces))}
        try:
            record["exception"] = dumps(error)
        except Exception:
            pass  # it cannot be pickled: return only the traceback
        return record


def main(directory: str) -> int:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not the directory of the package itself
    from ddrun import _files

    try:
        place = _files.open_directory(directory)
        call = _files.read(place, _files.CALL)
    except FileNotFoundError:
        call = None
    except OSError as error:
        sys.exit(f"error: cannot use '{directory}': {error.strerror}\n"
                 "  tip: pass a directory to which only you can write: ddrun.launch(..., directory=...)")
    if call is None:
        sys.exit(f"error: {directory} is not visible on this node\n"
                 "  tip: pass a directory that all nodes share: ddrun.launch(..., directory=...)")
    record = outcome(call)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sys.stdout.flush()
    _files.write(place, _files.result(rank), {"rank": rank, "size": size, "pid": os.getpid(), **record})
    if "traceback" in record:
        sys.stderr.write(record["traceback"])
    return 1 if "traceback" in record else 0


def leave(code: int) -> None:
    """Exit as a forked process of multiprocessing does, after threads and atexit functions.

    While the interpreter ends, a thread of PyTorch's gloo may abort the process, although its result is written.
    """
    threading._shutdown()  # type: ignore  # ends the idle threads of executors, and joins all others
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # Python 3.8 and 3.9 raise the last exception, which they have printed
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # the program has closed it
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1]))
