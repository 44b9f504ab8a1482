"""A temporary cluster with a real scheduler: the login machine "ctl" and some nodes, each in namespaces of its own.

    with Cluster(Options(nodes=4)) as cluster:
        print(cluster.run(["srun", "-N4", "hostname"]).out)

The host machine is not changed: everything is in namespaces and in one directory below BASE. The state.json
there lists the running processes (pids with start times), so that a later process can end them.
"""

import fcntl
import glob
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import proc
from gridengine import GridEngine
from machine import HERE, LIMIT, PATH, ClusterError, Machine, Result, Run, until
from openpbs import OpenPBS
from proc import Ident
from slurm import Slurm

__all__ = ["Cluster", "ClusterError", "Options", "Result", "Run", "until", "why_not", "sweep", "clusters", "up"]

BASE = os.environ.get("DDCLUSTER_BASE", "/var/tmp/ddcluster")
USERS = {"root": 0, "alice": 20001, "bob": 20002, "nobody": 65534}
NEEDS = {"util-linux": ["unshare", "nsenter", "setpriv", "setsid", "mount"], "coreutils": ["env", "mknod"],
         "iproute2": ["ip"], "munge": ["munged"]}
SCHEDULERS = {"slurm": Slurm, "openpbs": OpenPBS, "gridengine": GridEngine}
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"


@dataclass
class Options:
    scheduler: str = "slurm"   # or openpbs, gridengine
    nodes: int = 4
    names: list = field(default_factory=list)      # default: node1, node2...
    hostnames: list = field(default_factory=list)  # what gethostname() returns there; default: the names
    domain: str = ""           # of the names that have addresses: node1.DOMAIN
    family: int = 4            # 6: the nodes have no IPv4 address but 127.0.0.1
    resolve: str = "good"      # addresses of names: good = the address in use, dead = an unassigned one,
                               # both = an unassigned and the good one, second = the second interface, none = none
    own_loopback: bool = False  # a node's own name has the address 127.0.1.1 (as Debian's installer configures it)
    second: str = ""           # a second interface: "live", or "dead" (up, but without neighbours)
    mpi_ports: str = "21000-21999"  # "" : no SLURM_STEP_RESV_PORTS
    gpus: int = 4
    cpus: int = 8
    kill_wait: int = 5
    slurmd_timeout: int = 15   # a slurmd that the machine stalls for seconds is not down
    slurm: list = field(default_factory=list)  # more lines for slurm.conf
    memory: bool = False       # Slurm limits the memory of a step by a cgroup (see no_memory_limits() in slurm.py)
    share: list = field(default_factory=list)  # visible on all nodes, also below /tmp, /run, /dev/shm or ~root


def why_not(scheduler="slurm"):
    """Return why this machine cannot have a cluster with this scheduler, or None."""
    if os.geteuid() != 0:
        return "the cluster needs root"
    for package, commands in (NEEDS | SCHEDULERS[scheduler].needs).items():
        for command in commands:
            if shutil.which(command, path=PATH) is None:
                return f"the cluster needs {command} (Debian package {package})"
    probe = subprocess.run(["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc",
                            "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, text=True,
                           check=False, env={"PATH": PATH})
    if probe.returncode != 0:
        return f"the cluster needs namespaces: {probe.stderr.strip()}"
    return SCHEDULERS[scheduler].why_not()


@contextmanager
def _base_locked():
    """Create the directory of all clusters on demand, and lock it while a cluster is made or removed."""
    while True:
        os.makedirs(BASE, exist_ok=True)
        try:
            os.chmod(BASE, 0o755)  # users of all clusters need access, under any umask
            fd = os.open(BASE, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # the last cluster was removed just now
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                current = os.stat(BASE).st_ino == os.fstat(fd).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield
                try:
                    os.rmdir(BASE)  # when it is empty
                except OSError:
                    pass
                return
        finally:
            os.close(fd)


def clusters():
    """Return the tags of all clusters."""
    return sorted(os.listdir(BASE)) if os.path.isdir(BASE) else []


def _load(tag):
    try:
        with open(f"{BASE}/{tag}/state.json", encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def sweep():
    """Remove the clusters whose owner is dead; return their tags."""
    swept = []
    with _base_locked():
        for tag in clusters():
            state = _load(tag)
            owner = state and state["owner"]
            if state is None or (owner and not Ident(**owner).alive()):
                Cluster.attach(tag).destroy()
                swept.append(tag)
    return swept


class Cluster:
    def __init__(self, options=None, tag=None, keep=False):
        """keep: the cluster outlives this process, until down()."""
        self.options = options or Options()
        self.tag = tag or f"t{os.getpid()}-{secrets.token_hex(3)}"
        if "/" in self.tag or self.tag.startswith("."):
            raise ClusterError(f"a tag is a plain name, not '{self.tag}'")
        self.base = f"{BASE}/{self.tag}"
        self.owner = None if keep else Ident.of(os.getpid())
        count = self.options.nodes
        self.names = list(self.options.names) or [f"node{i}" for i in range(1, count + 1)]
        self.hostnames = list(self.options.hostnames) or self.names
        self.users = {name: (uid, f"{self.base}/home/{name}" if uid else "/root") for name, uid in USERS.items()}
        self.scheduler = SCHEDULERS[self.options.scheduler](self)
        self.machines = {name: Machine(self.base, name, self.users, self.scheduler) for name in ["ctl", *self.names]}
        self.ctl = self.machines["ctl"]
        self.work = f"{self.base}/work"

    @classmethod
    def attach(cls, tag):
        """Return the cluster that another process has started."""
        state = _load(tag)
        if state is None and not os.path.isdir(f"{BASE}/{tag}"):
            raise ClusterError(f"there is no cluster '{tag}' (there are: {', '.join(clusters()) or 'none'})")
        cluster = cls(Options(**state["options"]) if state else None, tag)
        for name, (init, keeper) in (state["machines"] if state else {}).items():
            machine = cluster.machines[name]
            machine.init = Ident(**init) if init else None
            machine.keeper = Ident(**keeper) if keeper else None
            machine.hidden = tuple(cluster._shared())
        if state:
            cluster.owner = Ident(**state["owner"]) if state["owner"] else None
        return cluster

    def _save(self):
        machines = {m.name: (m.init and asdict(m.init), m.keeper and asdict(m.keeper))
                    for m in self.machines.values()}
        state = {"owner": self.owner and asdict(self.owner), "options": asdict(self.options), "machines": machines}
        with open(f"{self.base}/state.new", "w", encoding="utf-8") as f:
            json.dump(state, f)
        os.rename(f"{self.base}/state.new", f"{self.base}/state.json")

    # --- up and down ---

    def up(self):
        reason = why_not(self.options.scheduler)
        if reason:
            raise ClusterError(reason)
        sweep()
        with _base_locked():
            try:
                os.mkdir(self.base)
            except FileExistsError:
                raise ClusterError(f"cluster '{self.tag}' is already up") from None
            self._save()
        try:
            self._come_up()
        except BaseException as e:
            if os.environ.get("DDCLUSTER_KEEP"):
                raise
            text = f"{e}\n{self.logs()}" if isinstance(e, ClusterError) else ""
            self.down()
            if text:
                raise ClusterError(text) from e
            raise
        return self

    def _come_up(self):
        self._write_files()
        self._boot(list(self.machines.values()))
        self._cable_ctl()
        for name in self.names:
            self._cable(name)
        self._munged(self.machines.values())
        self.scheduler.start_head()
        for name in self.names:
            self.scheduler.start_node(name)
        self.wait_idle()

    def logs(self, lines=20):
        """Return the last lines of the daemons' logs."""
        places = glob.glob(f"{self.base}/log/*") + [place for name in self.machines for place in self.scheduler.logs(name)]
        found = []
        for place in sorted(places):
            try:
                with open(place, encoding="utf-8", errors="replace") as f:
                    last = f.readlines()[-lines:]
            except OSError:
                continue
            found += [f"--- {place.removeprefix(self.base + '/')}\n", *last] if last else []
        return "".join(found)

    def down(self):
        with _base_locked():
            self.destroy()

    def destroy(self):
        """Do what down() does; the caller holds the lock."""
        for machine in self.machines.values():
            if machine.init:
                machine.init.kill()  # all at once: no machine may log the end of another
        for machine in self.machines.values():
            machine.kill()
        self.scheduler.clean_up()
        shutil.rmtree(self.base, ignore_errors=True)
        if os.path.isdir(self.base):
            shutil.rmtree(self.base)

    def __enter__(self):
        return self.up()

    def __exit__(self, *exc):
        self.down()

    def _shared(self):
        """Return the shared directories, outer ones before inner ones."""
        wanted = {os.path.realpath(path) for path in [self.base, *self.options.share] if os.path.isdir(path)}
        return sorted(wanted)

    def _write_files(self):
        for path, mode in (("state", 0o700), ("log", 0o755), ("stage", 0o755), ("home", 0o755), ("work", 0o1777),
                           ("machines", 0o755)):
            os.mkdir(f"{self.base}/{path}")
            os.chmod(f"{self.base}/{path}", mode)
        for name, (uid, home) in self.users.items():
            if uid:
                os.mkdir(home, 0o700)
                os.chown(home, uid, uid)
        with open(f"{self.base}/munge.key", "wb") as f:
            os.fchmod(f.fileno(), 0o400)
            f.write(secrets.token_bytes(64))
        for name in self.machines:
            os.mkdir(f"{self.base}/machines/{name}")
            self.set_hosts(name, self.hosts(name))
            self.write(f"machines/{name}/nsswitch.conf", NSSWITCH)
            self.write(f"machines/{name}/passwd", self._accounts("/etc/passwd", "{0}:x:{1}:{1}::{2}:/bin/bash\n"))
            self.write(f"machines/{name}/group", self._accounts("/etc/group", "{0}:x:{1}:\n"))
        shutil.copy(f"{HERE}/squatter.py", self.base)  # readable by other users
        self.scheduler.write_files()
        for name in self.machines:
            self._write_mounts(name)

    def _write_mounts(self, name):
        """Write the mounts that machine.sh reads: the scheduler's files at their places, even if this host has none there."""
        binds = self.scheduler.binds(name)
        missing = {place: source for place, source in binds.items() if not os.path.lexists(place)}
        for place, source in missing.items():
            over = f"{self.base}/machines/{name}/over{place}"
            os.makedirs(over if os.path.isdir(source) else os.path.dirname(over), exist_ok=True)
            if not os.path.isdir(source):
                open(over, "w", encoding="ascii").close()
        over = {os.path.dirname(place) for place in missing}
        over = sorted(place for place in over if not any(place.startswith(outer + "/") for outer in over))
        self.write(f"machines/{name}/over.list", "".join(f"{place}\n" for place in over))
        self.write(f"machines/{name}/binds.list", "".join(f"{source} {place}\n" for place, source in binds.items()))

    def write(self, path, text):
        with open(f"{self.base}/{path}", "w", encoding="utf-8") as f:
            f.write(text)
        return f.name

    def _accounts(self, path, form):
        """Return this host's accounts and those of the cluster's users."""
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            lines = f.readlines()
        there = {line.partition(":")[0] for line in lines}
        return "".join(lines) + "".join(form.format(name, uid, home) for name, (uid, home) in self.users.items()
                                        if name not in there)

    # --- machines, network, daemons ---

    def _boot(self, machines):
        for machine in machines:
            hostname = dict(zip(self.names, self.hostnames)).get(machine.name, machine.name)
            gpus = 0 if machine is self.ctl else self.options.gpus
            machine.boot(hostname, gpus, self._shared(), self._save)
        for machine in machines:
            machine.booted()

    def number(self, name):
        return 254 if name == "ctl" else self.names.index(name) + 1

    def address(self, name, net=None):
        """Return the address of a machine in the network in use, or in net "second" or "nobody" (which has no machines)."""
        third, n = {None: 7, "second": 8, "nobody": 9}[net], self.number(name)
        return f"fd00:dd:{third}::{n:x}" if self.options.family == 6 else f"10.231.{third}.{n}"

    def _cable_ctl(self):
        # A bridge takes the lowest address of its ports. Without a fixed address, the crash of a node may remove that of ctl's
        # bridge, and packets to ctl are lost until the nodes resolve it again.
        lines = ["link set lo up", "link add br0 address 02:dd:00:00:07:fe type bridge", "link set br0 up", self._address_line("ctl", "br0")]
        if self.options.second == "live":
            lines += ["link add br1 address 02:dd:00:00:08:fe type bridge", "link set br1 up", self._address_line("ctl", "br1", "second")]
        self.ctl.net(lines)

    def _address_line(self, name, interface, net=None):
        if self.options.family == 6:
            return f"addr add {self.address(name, net)}/64 dev {interface} nodad"
        return f"addr add {self.address(name, net)}/24 dev {interface}"

    def _cable(self, name):
        """Connect eth0 to ctl's bridge. A second interface that is to be dead is not connected."""
        machine, n, second = self.machines[name], self.number(name), self.options.second
        lines = [f"link add p{n} type veth peer name eth0 netns {machine.init.pid}", f"link set p{n} master br0 up"]
        inner = ["link set lo up", self._address_line(name, "eth0"), "link set eth0 up"]
        if second:
            lines += [f"link add q{n} type veth peer name eth1 netns {machine.init.pid}",
                      f"link set q{n} {'master br1 ' if second == 'live' else ''}up"]
            inner += [self._address_line(name, "eth1", "second"), "link set eth1 up"]
        self.ctl.net(lines)
        machine.net(inner)

    def _munged(self, machines):
        """Start munged with the scheduler's own socket name, so that a test can remove the default socket."""
        for machine in machines:
            machine.daemon(["munged", "--foreground", "--force", f"--key-file={self.base}/munge.key",
                            "--num-threads=2", "--socket=/run/munge/slurm.socket",
                            "--pid-file=/run/munge/munged.pid", "--log-file=/run/munge/munged.log",
                            "--seed-file=/run/munge/munged.seed"], "munged")
        for machine in machines:
            place = machine.path("/run/munge")
            until(lambda place=place: os.path.exists(f"{place}/slurm.socket"), LIMIT,
                  lambda machine=machine: f"munged of {machine.name} listens: {machine.log('munged')}")
            os.symlink("slurm.socket", f"{place}/munge.socket.2")

    def states(self):
        """Return the scheduler's state of each node: {"node1": "idle", ...}."""
        return self.scheduler.states()

    def wait_idle(self, nodes=None, timeout=LIMIT):
        """Wait until the scheduler accepts jobs for these nodes (default: all)."""
        wanted = nodes or self.names
        until(lambda: all(self.states().get(name) == "idle" for name in wanted), timeout,
              lambda: f"nodes {wanted} idle: {self.states()}\n{self.logs()}")

    def crash(self, name):
        """Simulate a power loss: no other machine is notified."""
        self.cut(name)
        self.machines[name].kill()
        for interface in self._interfaces():
            try:
                # Unsent FINs keep the dead network namespace alive for minutes, and with it the interfaces.
                self.ctl.net([f"link del {self._port(name, interface)}"])
            except ClusterError as e:
                if "device" not in str(e):  # "Cannot find device": the namespace has ended already, and its interface with it
                    raise
        self._save()

    def start(self, name):
        """Restart a node after crash()."""
        machine = self.machines[name]
        self.scheduler.wait_lost(name)
        self._boot([machine])
        self._cable(name)
        self._munged([machine])
        self.scheduler.start_node(name)
        return machine

    def _interfaces(self):
        return ["eth0", "eth1"] if self.options.second else ["eth0"]

    def cut(self, name, interface="eth0"):
        """Take the node's interface down at the bridge."""
        self.ctl.net([f"link set {self._port(name, interface)} down"])

    def heal(self, name, interface="eth0"):
        self.ctl.net([f"link set {self._port(name, interface)} up"])

    def _port(self, name, interface):
        return {"eth0": "p", "eth1": "q"}[interface] + str(self.number(name))

    def stop_daemon(self, name):
        """Kill the scheduler's daemon of this node alone; the processes of jobs continue."""
        for process in self.all_processes(name):
            if os.path.basename(process.cmdline.split(" ")[0]) == self.scheduler.node_daemon:
                Ident.of(process.outer).kill()

    def start_daemon(self, name):
        self.scheduler.start_node(name)

    def munge(self, name, there):
        """Create or remove munge's default socket in this machine (the scheduler keeps its own)."""
        path = self.machines[name].path("/run/munge/munge.socket.2")
        if there and not os.path.lexists(path):
            os.symlink("slurm.socket", path)
        elif not there and os.path.lexists(path):
            os.unlink(path)

    # --- names ---

    def hosts(self, name):
        """Return the text of a machine's /etc/hosts according to the options."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{self.address('ctl')} ctl"]
        if self.options.own_loopback and name != "ctl":
            own = self.hostnames[self.names.index(name)]
            lines.append("127.0.1.1 " + own)
        dead = "second" if self.options.second == "dead" else "nobody"
        nets = {"good": [None], "dead": [dead], "both": [dead, None], "second": ["second"], "none": []}
        for other, hostname in zip(self.names, self.hostnames):
            if self.options.own_loopback and other == name:
                continue
            names = other if other == hostname else f"{hostname} {other}"
            if self.options.domain:
                names = f"{hostname}.{self.options.domain} {names}"
            lines += [f"{self.address(other, net)} {names}" for net in nets[self.options.resolve]]
        return "\n".join(lines) + "\n"

    def set_hosts(self, name, text):
        """Replace a machine's /etc/hosts."""
        self.write(f"machines/{name}/hosts", text)

    # --- commands ---

    def popen(self, argv, node="ctl", **how):
        """Start a command (user=, env=, cwd=, tty=), by default in the directory that all machines share."""
        how.setdefault("cwd", self.work)
        # A busy machine may stall one process for ddrun's default, and any rank may wait for a processor.
        how["env"] = {"DDRUN_HEARTBEAT": "60s", "DDRUN_STRAGGLER_INTERVAL": "0", **(how.get("env") or {})}
        return self.machines[node].popen(argv, **how)

    def run(self, argv, node="ctl", timeout=LIMIT, **how):
        with self.popen(argv, node, **how) as run:
            return run.wait(timeout)

    def directory(self, name, user="root"):
        """Create a directory that all machines see; return its path."""
        path = f"{self.work}/{name}-{secrets.token_hex(3)}"
        os.mkdir(path)
        os.chown(path, USERS[user], USERS[user])
        return path

    def reset(self, timeout=LIMIT):
        """Restore the cluster: no jobs, all interfaces up, all nodes running."""
        for name in self.names:
            self.set_hosts(name, self.hosts(name))  # before its daemons start: they look up its name
            if self.machines[name].up():
                self.heal(name)
            else:
                self.start(name)
            self.munge(name, True)
        self.scheduler.end_jobs()
        until(lambda: not self.scheduler.jobs(), timeout, lambda: f"no jobs: {self.scheduler.jobs()}")
        self.wait_idle(timeout=timeout)

    def squat(self, name, ports, how="silent", user="nobody"):
        """Start a listener of another user in a node: "silent" accepts and sends nothing, "garbage" sends garbage, "close"
        closes each connection, "deaf" never accepts; "full" and "bound" as in squatter.py. Returns the Run; its close() ends
        the listener."""
        run = self.popen(["python3", f"{self.base}/squatter.py", how, *map(str, ports)], node=name, user=user)
        run.wait_for("listening")
        return run

    # --- inspection ---

    def all_processes(self, name):
        """Return all processes of a machine, including its own daemons."""
        return proc.processes(self.machines[name].init.pid)

    def processes(self, name):
        return self.machines[name].processes()

    def kill(self, name, pid, sig=signal.SIGKILL):
        """Signal process `pid`, numbered as in the machine; return whether the signal was sent."""
        for process in self.processes(name):
            if process.pid == pid:
                ident = Ident.of(process.outer)
                return bool(ident and ident.kill(sig))
        return False

    def sockets(self, name):
        return self.machines[name].sockets()

    def shm(self, name):
        return self.machines[name].files("/dev/shm")

    def tmp(self, name):
        return self.machines[name].files("/tmp")

    def snapshot(self, names=None):
        """Return what a job could leave on the nodes, as a set of (node, text)."""
        seen, spaces = set(), proc.pids_by_space()
        for name in names or self.names:
            machine = self.machines[name]
            things = machine.processes(spaces) + machine.sockets(spaces) + machine.files("/dev/shm") + machine.files("/tmp")
            seen |= {(name, str(thing)) for thing in things}
        return seen

    def assert_nothing_left(self, before, timeout=LIMIT):
        """Wait until the nodes look as in `before` (a snapshot()); after `timeout` seconds raise ClusterError with what is
        left."""
        names = sorted({name for name in self.names if self.machines[name].up()})
        left = []

        def nothing():
            left[:] = sorted(self.snapshot(names) - before)
            return not left

        until(nothing, timeout, lambda: "left behind: " + "; ".join(f"{name}: {what}" for name, what in left))


def up(options):
    """Return a new cluster. One that does not come up, as on an overloaded machine, is made once more."""
    try:
        return Cluster(options).up()
    except ClusterError as e:
        print(f"the cluster of {options.scheduler} did not come up, and is made once more: {e}", file=sys.stderr, flush=True)
        return Cluster(options).up()
