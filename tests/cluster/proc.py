"""Processes, sockets and files of one machine of the cluster, as /proc shows them."""

import ipaddress
import os
import select
import signal
import struct
from dataclasses import dataclass


def _stat(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        return f.read().rpartition(b")")[2].split()


@dataclass(frozen=True)
class Ident:
    """A process, identified by pid and start time, so that a later process with the same pid differs."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid):
        """Return the Ident of a pid, or None if there is no such process."""
        try:
            return cls(pid, int(_stat(pid)[19]))
        except (OSError, IndexError):
            return None

    def alive(self):
        try:
            stat = _stat(self.pid)
        except OSError:
            return False
        return int(stat[19]) == self.start and stat[0] not in (b"Z", b"X")

    def kill(self, sig=signal.SIGKILL):
        """Send the signal; return whether this very process existed."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, sig)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def wait_gone(self, timeout):
        """Wait for the process's end; return whether it ended (it may still be a zombie)."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return True
        try:
            if not self.alive():
                return True
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(timeout * 1000))
        finally:
            os.close(fd)


@dataclass(frozen=True, order=True)
class Proc:
    pid: int  # as seen in the machine
    cmdline: str
    uid: int
    outer: int  # its pid outside
    parent: int  # its parent's pid outside

    def __str__(self):
        return f"process {self.pid} (uid {self.uid}): {self.cmdline}"


@dataclass(frozen=True, order=True)
class Sock:
    proto: str  # tcp, tcp6, udp, udp6, unix
    local: str
    remote: str
    state: str  # listen, established, bound
    owner: str  # "pid command", "" if no process holds it any more

    def __str__(self):
        return f"{self.proto} {self.local} {self.remote} {self.state} of {self.owner or 'nobody'}"


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _cmdline(pid):
    text = _read(f"/proc/{pid}/cmdline")
    if text:
        return text.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return "[" + _read(f"/proc/{pid}/comm").strip().decode(errors="replace") + "]"


def _status(pid):
    lines = _read(f"/proc/{pid}/status").decode(errors="replace").splitlines()
    return {key: value.split() for key, _, value in (line.partition(":") for line in lines)}


def _space(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def pids_by_space():
    """Return {pid namespace: the pids in it}. One pass over all processes is enough for all machines of a snapshot."""
    spaces = {}
    for pid in _pids():
        spaces.setdefault(_space(pid), []).append(pid)
    spaces.pop(None, None)  # these have just ended
    return spaces


def processes(init, spaces=None):
    """Return all processes in the pid namespace of process `init`, including zombies. spaces: pids_by_space()."""
    found = []
    for pid in (pids_by_space() if spaces is None else spaces).get(_space(init), []):
        status = _status(pid)
        if "NSpid" in status:
            found.append(Proc(int(status["NSpid"][-1]), _cmdline(pid), int(status["Uid"][0]), pid,
                              int(status["PPid"][0])))
    return sorted(found)


def _owners(procs):
    """Return {socket inode: the process that holds it}."""
    owners = {}
    for proc in procs:
        try:
            fds = os.listdir(f"/proc/{proc.outer}/fd")
        except OSError:
            continue
        for fd in fds:
            try:
                target = os.readlink(f"/proc/{proc.outer}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                owners.setdefault(target[8:-1], proc)
    return owners


def _endpoint(text):
    """Convert '0100007F:1F90' or its 32-digit form to '127.0.0.1:8080' or '[::1]:8080' (words in host order)."""
    host, _, port = text.partition(":")
    words = [int(host[i:i + 8], 16) for i in range(0, len(host), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"


_INET_STATE = {"0A": "listen", "01": "established"}


def _inet(init, proto):
    for line in _read(f"/proc/{init}/net/{proto}").decode().splitlines()[1:]:
        field = line.split()
        state = "bound" if proto.startswith("udp") else _INET_STATE.get(field[3])
        if state:
            yield field[9], proto, _endpoint(field[1]), _endpoint(field[2]), state


def is_listening(init, port):
    """True if a process listens on a TCP port in the machine of process `init`."""
    rows = [row for proto in ("tcp", "tcp6") for row in _inet(init, proto)]
    return any(state == "listen" and local.endswith(f":{port}") for _, _, local, _, state in rows)


def _unix(init):
    """Yield the listening sockets alone: connections have no name of their own."""
    for line in _read(f"/proc/{init}/net/unix").decode(errors="replace").splitlines()[1:]:
        field = line.split(None, 7)
        if int(field[3], 16) & 0x10000:
            yield field[6], "unix", field[7] if len(field) > 7 else "", "", "listen"


def sockets(init, is_own, spaces=None):
    """Return the listening and established sockets of the machine of process `init`, except those of the processes for which
    is_own(Proc) holds. spaces: pids_by_space()."""
    owners = _owners(processes(init, spaces))
    found = []
    rows = [row for proto in ("tcp", "tcp6", "udp", "udp6") for row in _inet(init, proto)]
    for inode, proto, local, remote, state in rows + list(_unix(init)):
        proc = owners.get(inode)
        # The owner of an unaccepted or half-closed connection is unknown. Slurm's daemons open and close connections all the
        # time, so of sockets without an owner only a listener counts.
        if is_own(proc) if proc else state != "listen":
            continue
        found.append(Sock(proto, local, remote, state, f"{proc.pid} {proc.cmdline}" if proc else ""))
    return sorted(found)


def files(init, top, hidden=()):
    """Return the paths of all files and directories below `top` in the machine, without those of other mounts, the paths in
    `hidden` and their parents."""
    root = f"/proc/{init}/root"
    found = []
    try:
        device = os.lstat(root + top).st_dev
    except OSError:
        return found
    stack = [top]
    while stack:
        place = stack.pop()
        try:
            entries = list(os.scandir(root + place))
        except OSError:
            continue
        for entry in entries:
            path = f"{place}/{entry.name}"
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if info.st_dev != device:
                continue
            if not any(way == path or way.startswith(path + "/") for way in hidden):
                found.append(path)
            if entry.is_dir(follow_symlinks=False):
                stack.append(path)
    return sorted(found)
