"""Calls of ddrun.launch() for test_python.py: launching.py NAME [OPTION...]; prints one JSON line."""

import atexit
import concurrent.futures
import ctypes
import json
import os
import signal
import sys
import threading
import time

import ddrun

OPTIONS = sys.argv[2:]


def my_rank():
    return int(os.environ["RANK"])  # a global variable would be that of the caller, with cloudpickle


class Point:
    """A class of __main__, in arguments and results."""

    def __init__(self, x):
        self.x = x


class TwoWords(Exception):
    """An exception that no process can rebuild from its pickle."""

    def __init__(self, one, two):
        super().__init__(one)


def double(point, offset):
    print(f"line of rank {my_rank()}", flush=True)
    return Point(2 * point.x + offset + my_rank())


def fail_in_rank(rank, kind):
    if my_rank() != rank:
        ddrun.init().barrier()  # ends by RoundOver, or SIGTERM
    if kind == "value":
        raise ValueError(f"boom in {rank}")
    if kind == "two":
        raise TwoWords("first", "second")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "unpicklable":
        return (x for x in ())
    return sys.exit({"exit": 5, "zero": 0}[kind])


def fail_once():
    worker = ddrun.init()
    if worker.round == 0 and worker.rank == 1:
        raise ValueError("only once")
    return worker.round, worker.restarts


def abort_late():
    """Register a function that aborts the process after Python has ended, as a thread of PyTorch's gloo may.

    The pool outlives the function, as those of libraries do: its idle thread ends only when Python asks it to.
    """
    sys.pool = concurrent.futures.ThreadPoolExecutor(1)
    sys.pool.submit(print, "of a pool", flush=True).result()
    libc = ctypes.CDLL(None)
    libc.on_exit(libc.abort, None)
    atexit.register(print, "at exit", flush=True)
    threading.Timer(0.1, lambda: print("of a thread", flush=True)).start()
    return "result"


def stay():
    print(f"pid {os.getpid()}", flush=True)
    time.sleep(600)


def surroundings():
    return {"ADDED": os.environ.get("ADDED"), "REMOVED": os.environ.get("REMOVED"), "python": sys.executable,
            "input": sys.stdin.read(), "here": sorted(n for n in os.listdir(".") if n.startswith(".ddrun-")),
            "tmp": sorted(n for n in os.listdir(os.environ["TMPDIR"]) if n.startswith(".ddrun-"))}


def library():
    with ddrun.init() as w:
        assert ddrun.init() is w
        w.put("key of %d" % w.rank, b"\0value")
        w.wait(["key of %d" % rank for rank in range(w.size)], timeout=60)
        buffer = bytearray(b"four" if w.rank == 1 else 4)
        w.broadcast(buffer, root=1, timeout=60)
        evens = w.group("parity %d" % (w.rank % 2), range(w.rank % 2, w.size, 2))
        w.heartbeat()
        seen = {"ranks": [w.rank, w.size, w.local_rank, w.local_size, w.node_rank, w.nodes, w.round, w.restarts],
                "get": w.get("key of 1", 60).decode(), "broadcast": buffer.decode(), "deleted": w.delete("none"),
                "all": [b.decode() for b in w.allgather(b"x" * w.rank, 60)],
                "group": [evens.rank, evens.size, [int(b) for b in evens.allgather(b"%d" % w.rank, 60)]],
                "sum": w.add("counter", 2), "event": w.next_event(0)}
        w.barrier(60)
        seen["final"] = w.add("counter", 0)
        return seen


def errors_of_library():
    w = ddrun.init()
    seen = []

    def note(function, *args):
        try:
            function(*args)
        except Exception as error:  # the test looks at its kind
            seen.append([type(error).__name__, isinstance(error, ddrun.Error), getattr(error, "errno", None), str(error)])

    note(w.get, "missing", 0.01)
    if w.rank == 0:
        note(w.barrier, 0.01)
        w.put("timed out", b"")
    else:
        w.get("timed out", 60)
        w.barrier(60)  # that of rank 0 is done
    w.barrier(60)
    note(w.put, "", b"")
    note(w.put, "a\0b", b"")
    note(w.get, "x", -1)
    child = os.fork()
    if child == 0:
        try:
            ddrun.init().get("missing", 0)
        except ddrun.LibraryError:
            os._exit(9)
        os._exit(1)
    seen.append(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
    w.close()
    note(w.get, "missing", 0)
    return seen


def wait_while_one_fails():
    w = ddrun.init()
    if w.round == 1:
        return w.round
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if w.rank == 0:
        w.barrier(60)
        sys.exit(1)
    w.barrier(60)
    try:
        w.get("never")
    except ddrun.RoundOver as error:
        print(f"RoundOver {error.errno}", flush=True)
        raise
    return None


def failure(call):
    """Return what launch() has returned or raised."""
    try:
        return {"returned": call()}
    except ddrun.LaunchError as error:
        seen = {name: getattr(error, name, None) for name in ("rank", "local_rank", "node", "exit_code", "signal", "traceback")}
        return {"kind": type(error).__name__, "message": str(error), "cause": repr(error.__cause__),
                "report": getattr(error, "report", {}).get("code"), **seen}


def simple(function, *args, **how):
    return lambda: ddrun.launch(function, args, options=OPTIONS, **how)


def environment():
    os.environ["REMOVED"] = "1"
    return ddrun.launch(surroundings, nproc_per_node=1, env={"ADDED": "a b", "REMOVED": None}, options=OPTIONS)


CALLS = {
    "double": lambda: [p.x for p in ddrun.launch(double, (Point(10), 1), nproc_per_node=2, options=OPTIONS)],
    "once": simple(fail_once, nproc_per_node=2, max_restarts=1),
    "stay": simple(stay, nproc_per_node=2),
    "environment": environment,
    "library": simple(library, nproc_per_node=2),
    "library-errors": simple(errors_of_library, nproc_per_node=2),
    "round-over": simple(wait_while_one_fails, nproc_per_node=2, max_restarts=1),
    "late": simple(abort_late),
    "lambda": simple(lambda: 3, nproc_per_node=2),
    "script": lambda: ddrun.launch("sh", ["-c", 'echo "script $RANK"; exit $1', "sh", OPTIONS[0]], nproc_per_node=2),
    "hosts": ddrun.hosts,
    **{kind: simple(fail_in_rank, 1, kind, nproc_per_node=2) for kind in ("value", "two", "kill", "unpicklable", "exit", "zero")},
}

if __name__ == "__main__":
    try:
        print(json.dumps(failure(CALLS[sys.argv[1]])))
    except KeyboardInterrupt:
        print("interrupted")
