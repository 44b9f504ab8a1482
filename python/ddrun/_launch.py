"""launch(): run a function or a script on all workers of a job.

A call uses a private directory: launch() writes the function and its arguments to one file, each worker its result or
exception to another, and ddrun its report. The directory is in TMPDIR if all workers run on this machine, otherwise in the
working directory, which the nodes of a cluster usually share. Unlike the store of the job, it has no size limit, survives
restarts and the end of the job, and can be read on a node without an agent of the job (an salloc shell).
"""

import codecs
import os
import pickle
import re
import selectors
import subprocess
import sys
import tempfile
import types
from typing import IO, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, TextIO, Tuple, TypeVar, Union, overload

from . import _files
from ._errors import LaunchError, WorkerError
from ._programs import find_program

__all__ = ["launch"]

T = TypeVar("T")
Count = Union[int, str, None]

# Cleans up after this process if it is killed. Input: the pid of ddrun, then an empty line when ddrun has ended, then "done";
# the end of the input without "done" is the end of this process. Its working directory is that of the call, whose name ($1) may
# by then belong to another directory.
_WATCH = """
while read -r word; do
    case $word in done) exit ;; *) pid=$word ;; esac
done
if [ -n "$pid" ]; then
    kill -TERM "$pid"
    n=0
    while kill -0 "$pid" && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
fi
rm -rf -- ./* ./.[!.]*
cd / && rmdir -- "$1"
"""


class _Directory:
    """The private directory of one call. If this process is killed, a watcher stops the job and removes the directory."""

    def __init__(self, parent: Optional[str]) -> None:
        self.path = os.path.abspath(tempfile.mkdtemp(prefix=".ddrun-", dir=parent))  # mode 0700
        try:
            self.fd = _files.open_directory(self.path)
        except OSError:
            os.rmdir(self.path)  # fails if it is not empty: it is then another one
            raise
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.watch = subprocess.Popen(["/bin/sh", "-c", _WATCH, "ddrun-watch", self.path], bufsize=0, stdin=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                      cwd=f"/proc/self/fd/{self.fd}")

    def __enter__(self) -> "_Directory":
        return self

    def run(self, command: List[str], env: Dict[str, str]) -> Tuple[int, str]:
        """Run ddrun and copy its output; return its exit status and the end of its stderr."""
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True)
        self._notify(str(self.process.pid))
        output = _Output(self.process)
        try:
            return output.show(), output.errors.seen
        finally:
            if self.process.returncode is not None:
                self._notify("")  # the pid may now be that of another process

    def __exit__(self, *exception: object) -> None:
        if self.process is None or self.process.returncode is not None:
            _files.remove_all(self.fd)
            try:
                os.rmdir(self.path)
            except OSError:
                pass  # another directory, or gone
            self._notify("done")
        os.close(self.fd)
        if self.watch.stdin is not None:
            self.watch.stdin.close()
        self.watch.wait()

    def _notify(self, word: str) -> None:
        try:
            if self.watch.stdin is not None:
                self.watch.stdin.write(word.encode() + b"\n")
        except BrokenPipeError:
            pass  # the watcher was killed: this process cleans up itself


class _Relay:
    """Copies one output stream of ddrun in whole lines, and keeps its last characters."""

    KEPT = 16384

    def __init__(self, source: IO[bytes], target: Optional[TextIO]) -> None:
        self.source, self.target = source, target
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.pending = self.seen = ""

    def read(self) -> bool:
        """Copy the output that is available; return False at the end of the stream."""
        data = os.read(self.source.fileno(), 65536)
        text = self.pending + self.decoder.decode(data, final=not data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1 if data else len(text)
        self.pending = text[end:]
        self.seen = (self.seen + text[:end])[-self.KEPT:]
        if self.target is not None and end > 0:
            self.target.write(text[:end])
            self.target.flush()
        return bool(data)


class _Output:
    """Copies stdout and stderr of a job until the job has ended."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process = process
        self.errors = _Relay(process.stderr, sys.stderr)
        self.relays = [_Relay(process.stdout, sys.stdout), self.errors]

    def show(self) -> int:
        """Copy the output to its end and return the exit status. Stop the job after an exception, such as KeyboardInterrupt."""
        try:
            return self._show()
        except BaseException:
            self._stop()
            raise
        finally:
            for relay in self.relays:
                relay.source.close()

    def _show(self) -> int:
        with selectors.DefaultSelector() as ready:
            for relay in self.relays:
                ready.register(relay.source, selectors.EVENT_READ, relay)
            while ready.get_map():
                for key, _ in ready.select(1):  # a Ctrl-C just before the wait does not end it: Python handles it afterwards
                    if not key.data.read():
                        ready.unregister(key.fileobj)
        return self.process.wait()

    def _stop(self) -> None:
        """Stop the job and wait for its end; another Ctrl-C kills its workers without a grace period."""
        terminated = False
        while self.process.poll() is None:
            try:
                if not terminated:
                    self.process.terminate()
                terminated = True
                self._show()
            except KeyboardInterrupt:
                terminated = False
            except Exception:  # the output cannot be written: discard it, since ddrun would block on a full pipe
                for relay in self.relays:
                    relay.target = None


def _main_script() -> Optional[str]:
    """Return the file of __main__, which workers without cloudpickle import, or None."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.abspath(path) if path is not None and os.path.isfile(path) else None


def _write_call(directory: int, function: Callable[..., Any], args: Sequence[Any]) -> None:
    pickler = _files.pickler()
    by_value = pickler is not pickle
    main = None if by_value else _main_script()
    if not by_value and main is None and getattr(function, "__module__", None) == "__main__":
        raise TypeError(f"cannot send {function!r} to the workers: it was defined interactively"
                        "\n  tip: pip install cloudpickle, or define the function in a module")
    try:
        call = pickler.dumps((function, tuple(args)))
    except Exception as error:
        tip = "" if by_value else "\n  tip: pip install cloudpickle, or use a function at the top level of a module"
        raise TypeError(f"cannot send {function!r} and its arguments to the workers: {error}{tip}") from error
    if main is not None:
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # module name of the script's classes in the workers' results
    _files.write(directory, _files.CALL, {"path": sys.path, "argv": sys.argv, "main": main, "call": call})


def _check_args(args: Any) -> None:
    """A string would be split into its characters."""
    if isinstance(args, (str, bytes)) or not hasattr(args, "__iter__"):
        raise TypeError(f"args must be a sequence, not {args!r}\n  tip: for one argument, args=({args!r},)")


def _is_on_this_machine(command: List[str], env: Dict[str, str]) -> bool:
    """Return True if ddrun would run all workers on this machine; False also if its dry run fails."""
    done = subprocess.run([command[0], "--dry-run", *command[1:]], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    found = re.search(rb"^node \d+ of (\d+) \(.*\), source: (\w+)", done.stdout, re.MULTILINE)
    starts_others = b"would start ddrun on" in done.stdout
    alone = found is not None and found.group(1) == b"1" and b"spare nodes" not in found.group()
    return found is not None and not starts_others and (alone or found.group(2) == b"simulated")


def _ddrun_message(errors: str) -> str:
    """Return the last error of ddrun itself with its tips, or the last lines."""
    lines = errors.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"ddrund?(\[[^]]*\])?: error: ", line)]
    return "\n".join(lines[starts[-1]:][:20] if starts else lines[-10:])


def _failure(directory: int, code: int, errors: str) -> LaunchError:
    """Return the exception for a job that has ended with this code."""
    report = _files.read_report(directory)
    failures = report.get("failures") or []
    if not failures:
        return LaunchError(f"ddrun failed with exit code {code}: {_ddrun_message(errors)}".rstrip(": "), code)
    first = failures[0]
    record = _files.read(directory, _files.result(int(first["rank"]))) or {}
    if record.get("pid") != first["pid"] or "traceback" not in record:  # missing, or of an earlier round
        record = {}
    traceback = record.get("traceback") or "\n".join(first.get("traceback") or [])
    message = str(report.get("cause") or f"rank {first['rank']} on {first['node']} failed")
    error = WorkerError(f"{message}\n\n{traceback}".rstrip(), first, traceback, report)
    error.__cause__ = _files.load(record.get("exception"))
    return error


def _results(directory: int) -> List[Any]:
    results: List[Any] = []
    size = 1
    while len(results) < size:
        rank = len(results)
        record = _files.read(directory, _files.result(rank))
        if record is None or "value" not in record:
            raise LaunchError(f"rank {rank} has left no result: it exited before the function returned, or launch() was called"
                              " on each node of a job instead of once", 0)
        size = int(record["size"])
        results.append(pickle.loads(record["value"]))
    return results


class _Plan(NamedTuple):
    """What to run, and how."""

    options: List[str]
    env: Dict[str, str]
    directory: Optional[str]

    def run(self, words: Sequence[str], function: Optional[Callable[..., Any]], args: Sequence[Any]) -> Any:
        command = [find_program(), "--stdin=none", *self.options]
        parent = self.directory
        if parent is None and not _is_on_this_machine([*command, *words], self.env):
            parent = os.getcwd()
        with _Directory(parent) as place:
            if function is not None:
                _write_call(place.fd, function, args)
                words = [*words, place.path]
            report = f"--report={os.path.join(place.path, _files.REPORT)}"
            code, errors = place.run([*command, report, *words], self.env)
            if code != 0:
                raise _failure(place.fd, code if code > 0 else 128 - code, errors)  # negative: ddrun was killed
            return 0 if function is None else _results(place.fd)


def _options(given: Sequence[str], counts: Mapping[str, Count]) -> List[str]:
    if isinstance(given, str):
        raise TypeError(f"options must be a list of words such as ['--label'], not the string {given!r}")
    for word in given:
        if word.split("=")[0] == "--report":
            raise ValueError("launch() uses --report itself; after a failure, WorkerError.report has the report")
    return [f"--{name}={value}" for name, value in counts.items() if value is not None] + list(given)


@overload
def launch(fn_or_script: Union[str, "os.PathLike[str]"], args: Sequence[str] = (), *, nproc_per_node: Count = None,
           nnodes: Count = None, max_restarts: int = 0, env: Optional[Mapping[str, Optional[str]]] = None,
           options: Sequence[str] = (), directory: Optional[str] = None) -> int: ...


@overload
def launch(fn_or_script: Callable[..., T], args: Sequence[Any] = (), *, nproc_per_node: Count = None, nnodes: Count = None,
           max_restarts: int = 0, env: Optional[Mapping[str, Optional[str]]] = None, options: Sequence[str] = (),
           directory: Optional[str] = None) -> List[T]: ...


def launch(fn_or_script: Any, args: Sequence[Any] = (), *, nproc_per_node: Count = None, nnodes: Count = None,
           max_restarts: int = 0, env: Optional[Mapping[str, Optional[str]]] = None, options: Sequence[str] = (),
           directory: Optional[str] = None) -> Any:
    """Run a function or a script on all workers of a job and wait for its end.

    In an allocation of a scheduler, ddrun starts the workers on all of its nodes, otherwise on this machine. The workers'
    output is copied line by line to sys.stdout and sys.stderr; the workers have no input. Ctrl-C (KeyboardInterrupt) stops
    the job; a second one skips the grace period. No process or file remains, unless all processes are killed at once.

    fn_or_script: a function, called as fn(*args) by each worker, or the path of a script or program, as on the command line
    args: positional arguments of the function, or command-line arguments for the script
    nproc_per_node: workers per node: a number, "auto", "gpu" or "cpu"; None: one per GPU (one without GPUs)
    nnodes: number of nodes, or "MIN:MAX"; None: all nodes of the allocation
    max_restarts: number of restarts of all workers after a failure
    env: variables for ddrun and the workers besides os.environ; None as a value removes one. The workers run this Python
        unless PYTHON_EXEC is among them.
    options: further options of ddrun (`ddrun --help=all`), one word each, such as ["--simulate-nodes=2", "--label"]
    directory: existing directory that all nodes share, for the files of this call; None: TMPDIR if all workers are on this
        machine, else the working directory

    Returns, for a function, the results of the last round as a list indexed by rank; for a script 0.

    Functions and results are pickled, with cloudpickle if it is installed, which also pickles functions of notebooks.
    Otherwise pickle is used: functions must then be at the top level of a module or script, and a script must call launch() below
    `if __name__ == "__main__":`.

    Raises WorkerError if a worker failed, LaunchError if the job failed but no worker did, TypeError if args is no sequence,
    or the function or its arguments cannot be pickled, FileNotFoundError if ddrun is not found.
    """
    _check_args(args)
    counts = {"nproc-per-node": nproc_per_node, "nnodes": nnodes, "max-restarts": max_restarts or None}
    changed = {"PYTHON_EXEC": sys.executable, **(env or {})}
    environ = {name: value for name, value in {**os.environ, **changed}.items() if value is not None}
    plan = _Plan(_options(options, counts), environ, directory)
    if isinstance(fn_or_script, (str, os.PathLike)):
        return plan.run([os.fspath(fn_or_script), *args], None, ())
    if not callable(fn_or_script) or isinstance(fn_or_script, types.ModuleType):
        raise TypeError(f"expected a function or the path of a script, not {fn_or_script!r}")
    return plan.run([_files.RUNNER], fn_or_script, args)
