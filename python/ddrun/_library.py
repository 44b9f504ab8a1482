"""libddrun for Python: <ddrun/ddrun.h> by ctypes. `man ddrun_init`, ddrun_put and ddrun_barrier describe each call.

Timeouts are in seconds; None waits until the round ends. While a call waits, other threads run, but Python handles
a signal only after the call has returned.
"""

import ctypes
import errno
import math
import os
import threading
from typing import Any, List, NamedTuple, Optional, Sequence, Union

from ._errors import LibraryError, RoundOver, Timeout
from ._programs import find_library

__all__ = ["Event", "Group", "Worker", "init", "step", "step_resume", "step_wait"]

_FOREVER = -1
_EVENT_KINDS = {1: "stop", 2: "signal"}
Bytes = Union[bytes, bytearray, memoryview]


class Event(NamedTuple):
    """kind "stop": the round is being stopped with the signal; "signal": the signal was sent to all workers as a notice."""

    kind: str
    signal: int


class _Piece(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Event(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("signal", ctypes.c_int)]


_HANDLE, _GROUP, _KEY, _MS = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_void_p)
_ARGUMENTS = {
    "init": [_OUT, _MS],
    "free": [_HANDLE],
    "put": [_HANDLE, _KEY, ctypes.c_char_p, ctypes.c_size_t, _MS],
    "get": [_HANDLE, _KEY, _OUT, ctypes.POINTER(ctypes.c_size_t), _MS],
    "wait": [_HANDLE, ctypes.POINTER(_KEY), ctypes.c_int, _MS],
    "delete": [_HANDLE, _KEY, _MS],
    "add": [_HANDLE, _KEY, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), _MS],
    "group": [_HANDLE, _OUT, _KEY, ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "group_rank": [_HANDLE, _GROUP],
    "group_size": [_HANDLE, _GROUP],
    "barrier": [_HANDLE, _GROUP, _MS],
    "broadcast": [_HANDLE, _GROUP, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, _MS],
    "allgatherv": [_HANDLE, _GROUP, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.POINTER(_Piece)), _MS],
    "heartbeat": [_HANDLE],
    "step": [_HANDLE, ctypes.c_int64],
    "step_wait": [_HANDLE],
    "step_resume": [_HANDLE],
    "next_event": [_HANDLE, ctypes.POINTER(_Event), _MS],
    **{name: [_HANDLE] for name in ("rank", "size", "local_rank", "local_size", "node_rank", "nodes", "round", "restarts")},
}


class _Library:
    """The loaded library, with the types of its functions."""

    def __init__(self) -> None:
        self.dll = ctypes.CDLL(find_library() or "libddrun.so.0")
        for name, arguments in _ARGUMENTS.items():
            getattr(self.dll, "ddrun_" + name).argtypes = arguments
        self.dll.ddrun_free.restype = None
        self.dll.ddrun_error.restype = ctypes.c_char_p
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]
        self.free.restype = None

    def call(self, name: str, *arguments: Any) -> int:
        """Call ddrun_NAME and raise its error."""
        rc = int(getattr(self.dll, "ddrun_" + name)(*arguments))
        if rc >= 0:
            return rc
        kind = {errno.ETIMEDOUT: Timeout, errno.ECANCELED: RoundOver}.get(-rc, LibraryError)
        raise kind(-rc, self.dll.ddrun_error().decode(errors="replace"))


def _milliseconds(timeout: Optional[float]) -> int:
    if timeout is None:
        return _FOREVER
    if not timeout >= 0:
        raise ValueError(f"invalid timeout {timeout!r}: expected seconds, 0 or more, or None")
    return min(math.ceil(timeout * 1000), 2**31 - 1) if timeout < 2**31 else 2**31 - 1


def _key(key: str) -> bytes:
    text = key.encode()
    if b"\0" in text:
        raise ValueError("invalid key: it contains a null byte")
    return text


class Group:
    """A list of workers of the round, or all of them. All members must call the same collectives in the same order, one at a
    time. A collective that has timed out counts as done.
    """

    def __init__(self, worker: "Worker", group: Optional[int]) -> None:
        self._worker, self._group = worker, group

    @property
    def rank(self) -> int:
        """Rank of this worker in the group, from 0."""
        return self._worker._call("group_rank", self._group)

    @property
    def size(self) -> int:
        """Number of the members."""
        return self._worker._call("group_size", self._group)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Wait until all members have called barrier(). Raises Timeout, which names the missing ranks, or RoundOver."""
        self._worker._call("barrier", self._group, _milliseconds(timeout))

    def broadcast(self, buffer: Any, root: int = 0, timeout: Optional[float] = None) -> None:
        """Copy the content of the buffer of member `root` into the buffers of all others.

        buffer: writable and contiguous (bytearray, array, NumPy array), of the same number of bytes on all members, at most
        64 MiB. Raises Timeout, RoundOver or LibraryError.
        """
        view = memoryview(buffer).cast("B")
        data = (ctypes.c_char * len(view)).from_buffer(view)
        self._worker._call("broadcast", self._group, root, data, len(view), _milliseconds(timeout))

    def allgather(self, data: Bytes, timeout: Optional[float] = None) -> List[bytes]:
        """Return the data of all members by rank in the group; each may have another length, at most 64 MiB.

        Raises Timeout, which names the missing ranks, RoundOver or LibraryError.
        """
        data, size, pieces = bytes(data), self.size, ctypes.POINTER(_Piece)()
        self._worker._call("allgatherv", self._group, data, len(data), ctypes.byref(pieces), _milliseconds(timeout))
        try:
            return [ctypes.string_at(pieces[i].data, pieces[i].len) if pieces[i].len else b"" for i in range(size)]
        finally:
            self._worker._library.free(pieces)


class Worker(Group):
    """This process as a worker of the job, made by init(), and the group of all workers. Usable by several threads at once.

    All stored data belongs to the round: a restart discards it.
    """

    def __init__(self, timeout: Optional[float]) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._step = -1
        self._pid = os.getpid()
        self._library = _Library()
        self._handle: Optional[int] = None
        handle = ctypes.c_void_p()
        self._library.call("init", ctypes.byref(handle), _milliseconds(timeout))
        self._handle = handle.value
        super().__init__(self, None)

    def _call(self, name: str, *arguments: Any) -> int:
        with self._lock:
            if self._handle is None:
                raise LibraryError(errno.EBADF, f"{name}: this Worker is closed")
            if self._pid != os.getpid():
                raise LibraryError(errno.EINVAL, f"{name}: this Worker belongs to the process that forked this one")
            self._calls += 1
        try:
            return self._library.call(name, self._handle, *arguments)
        finally:
            with self._lock:
                self._calls -= 1

    def close(self) -> None:
        """Close the connection to the store. Raises LibraryError (EBUSY) while another thread is in a call."""
        with self._lock:
            if self._calls > 0:
                raise LibraryError(errno.EBUSY, "close: another thread is in a call")
            if self._handle is not None:
                self._library.dll.ddrun_free(self._handle)
            self._handle = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def local_rank(self) -> int:
        """Rank among the workers of this node, from 0."""
        return self._call("local_rank")

    @property
    def local_size(self) -> int:
        """Number of the workers of this node."""
        return self._call("local_size")

    @property
    def node_rank(self) -> int:
        """Rank of this node, from 0."""
        return self._call("node_rank")

    @property
    def nodes(self) -> int:
        """Number of the nodes."""
        return self._call("nodes")

    @property
    def round(self) -> int:
        """Number of the round, from 0; a restart, a lost node or a new one begins the next."""
        return self._call("round")

    @property
    def restarts(self) -> int:
        """Number of the restarts after failures."""
        return self._call("restarts")

    def put(self, key: str, value: Bytes, timeout: Optional[float] = None) -> None:
        """Set a key, of 1 to 4,096 bytes, to a value of at most 64 MiB for all workers of the round."""
        value = bytes(value)
        self._call("put", _key(key), value, len(value), _milliseconds(timeout))

    def get(self, key: str, timeout: Optional[float] = None) -> bytes:
        """Wait until a key exists and return its value; a timeout of 0 tries once. Raises Timeout or RoundOver."""
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("get", _key(key), ctypes.byref(value), ctypes.byref(length), _milliseconds(timeout))
        try:
            return ctypes.string_at(value, length.value)
        finally:
            self._library.free(value)

    def wait(self, keys: Sequence[str], timeout: Optional[float] = None) -> None:
        """Wait until all keys exist. Raises Timeout or RoundOver."""
        names = (ctypes.c_char_p * len(keys))(*map(_key, keys))
        self._call("wait", names, len(keys), _milliseconds(timeout))

    def delete(self, key: str, timeout: Optional[float] = None) -> bool:
        """Delete a key; return whether it existed."""
        return bool(self._call("delete", _key(key), _milliseconds(timeout)))

    def add(self, key: str, delta: int = 1, timeout: Optional[float] = None) -> int:
        """Add to a counter of 64 bits, which starts at 0, and return the sum. Keys and counters have separate names."""
        result = ctypes.c_int64()
        if not -2**63 <= delta < 2**63:
            raise ValueError(f"invalid delta {delta}: expected a number of 64 bits")
        self._call("add", _key(key), delta, ctypes.byref(result), _milliseconds(timeout))
        return result.value

    def group(self, name: str, ranks: Sequence[int]) -> Group:
        """Return the group of these ranks, which must include this worker's; their order gives the ranks in the group.

        Calls with the same name (at most 128 bytes) and ranks create the same group, without communication.
        """
        group = ctypes.c_void_p()
        self._call("group", ctypes.byref(group), _key(name), (ctypes.c_int * len(ranks))(*ranks), len(ranks))
        return Group(self, group.value)

    def heartbeat(self) -> None:
        """Signal progress, for --hang-timeout, for example once in each step. Does nothing without that option."""
        self._call("heartbeat")

    def step(self, number: Optional[int] = None) -> None:
        """A step of the training begins, and the one before it is complete: call it once in each step, at its begin.

        ddrun compares the times of all ranks and names the stragglers (`man ddctl`, status). number: 0 or more; None: one more
        than the last one. Costs some microseconds and no communication; does nothing without ddrun. One thread at a time.
        """
        self._step = self._step + 1 if number is None else number
        if not 0 <= self._step < 2**63:
            raise ValueError(f"invalid step {self._step}: expected 0 or more")
        self._call("step", self._step)

    def step_wait(self) -> None:
        """From here to step_resume(), or to the next step(), this rank may wait for others, as in a collective or in the
        backward pass of DDP. Only what remains of a step tells how fast a rank is.
        """
        self._call("step_wait")

    def step_resume(self) -> None:
        """The wait is over."""
        self._call("step_resume")

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """Wait for the next event of this round and return it, or None after the timeout. Raises RoundOver at the end."""
        event = _Event()
        try:
            self._call("next_event", ctypes.byref(event), _milliseconds(timeout))
        except Timeout:
            return None
        return Event(_EVENT_KINDS.get(event.kind, str(event.kind)), event.signal)


_lock = threading.Lock()
_worker: Optional[Worker] = None


def init(timeout: Optional[float] = 60.0) -> Worker:
    """Connect to the store of the round and return this process's Worker: always the same one until it is closed.

    A child of os.fork() cannot use its parent's Worker (EINVAL); a program that it executes may call init().

    Without ddrun the process is rank 0 of 1. timeout: seconds. Raises LibraryError: a variable of the environment is invalid
    (EINVAL), the store cannot be reached (Timeout, ECONNREFUSED) or does not accept this process (EACCES). Raises OSError if
    there is no libddrun.
    """
    global _worker
    with _lock:
        if _worker is None or _worker._handle is None:
            _worker = Worker(timeout)
        return _worker


def step(number: Optional[int] = None) -> None:
    """init().step(number): a step of the training begins."""
    init().step(number)


def step_wait() -> None:
    """init().step_wait(): from here this rank may wait for others."""
    init().step_wait()


def step_resume() -> None:
    """init().step_resume(): the wait is over."""
    init().step_resume()
