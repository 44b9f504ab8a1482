"""OpenPBS on the machines of a cluster: server, scheduler, pbs_comm and its database on ctl, pbs_mom on each node.

OpenPBS is the one that contrib/openpbs has built, which the machines see at /opt/pbs, or an installed one. A new server
takes seconds to make its database, which is made once and kept as a template.
"""

import contextlib
import fcntl
import glob
import os
import re
import subprocess
from dataclasses import replace

from machine import LIMIT, PATH, ClusterError, until
from scheduler import Scheduler

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddrun")
USUAL = "/opt/pbs"
HOME = "/var/spool/pbs"
TEMPLATE = 1  # increment it when the contents of a template change

CONF = """\
PBS_SERVER=ctl
PBS_EXEC={exec}
PBS_HOME={home}
PBS_CORE_LIMIT=unlimited
PBS_START_SERVER={head}
PBS_START_SCHED={head}
PBS_START_COMM={head}
PBS_START_MOM={node}
"""

MOM_CONFIG = """\
$clienthost ctl
$usecp *:{base} {base}
$tmpdir /tmp
$logevent 0x1ff
"""

SERVER = """\
create resource ngpus type=long, flag=hn
set server flatuid = True
set server job_history_enable = True
set server managers = root@*
set server default_queue = workq
set server node_fail_requeue = 3600
"""


def built():
    """Return the newest build of contrib/openpbs on this host, or None."""
    said = os.environ.get("DDRUN_OPENPBS")
    found = [said] if said else glob.glob(f"{CACHE}/openpbs-*")
    found = [place for place in found if os.path.exists(f"{place}/complete")]
    return max(found, key=os.path.getmtime, default=None)


def installed():
    """Return the directory of an OpenPBS with server and mom that is installed on this host, or None."""
    place = USUAL
    with contextlib.suppress(OSError), open("/etc/pbs.conf", encoding="utf-8") as f:
        place = dict(line.strip().partition("=")[::2] for line in f).get("PBS_EXEC", place)
    complete = all(os.access(f"{place}/sbin/{name}", os.X_OK) for name in ("pbs_server", "pbs_mom", "pbs_comm", "pbs_sched"))
    return place if complete else None


class OpenPBS(Scheduler):
    daemons = ("pbs_server.bin", "pbs_sched", "pbs_comm", "pbs_mom")
    node_daemon = "pbs_mom"
    setuid = True  # pbs_iff

    def __init__(self, cluster):
        super().__init__(cluster)
        self.built = built()
        self.exec = USUAL if self.built else installed()
        self.template = f"{self.built or CACHE + '/openpbs-installed'}/template-{TEMPLATE}"
        self.making = cluster.tag.startswith("template")  # this cluster makes the template
        self.env = {"PATH": f"{PATH}:{self.exec}/bin:{self.exec}/sbin"}

    @classmethod
    def why_not(cls):
        if built() or installed():
            return None
        return "no OpenPBS is installed here, and none has been built (contrib/openpbs)"

    # --- files ---

    def _home(self, name):
        return f"{self.cluster.base}/machines/{name}/pbs"

    def binds(self, name):
        places = {"/etc/pbs.conf": f"{self.cluster.base}/machines/{name}/pbs.conf", HOME: self._home(name)}
        if self.built:
            places |= {place: self.built + place for place in (USUAL, "/etc/profile.d/pbs.sh")}
        return places

    def write_files(self):
        if not self.making:
            self._need_template()
        for name in self.cluster.machines:
            head = name == "ctl"
            text = CONF.format(exec=self.exec, home=HOME, head=int(head), node=int(not head))
            self.cluster.write(f"machines/{name}/pbs.conf", text)
            if self.making:
                os.mkdir(self._home(name))
                continue
            _copy(f"{self.template}/{'head' if head else 'node'}", self._home(name))
            if not head:
                self.cluster.write(f"machines/{name}/pbs/mom_priv/config", MOM_CONFIG.format(base=self.cluster.base))

    def _need_template(self):
        """Make the template, the PBS_HOME after the first start of a server and of a mom, unless it exists."""
        os.makedirs(os.path.dirname(self.template), exist_ok=True)
        with open(self.template + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(self.template):
                return
            made = type(self.cluster)(replace(self.cluster.options, nodes=1, names=[], hostnames=[]), f"template{os.getpid()}")
            new = f"{self.template}.{os.getpid()}"
            with made:
                made.scheduler.stop_head()
                os.mkdir(new)
                _copy(made.scheduler._home("ctl"), f"{new}/head")
                _copy(made.scheduler._home("node1"), f"{new}/node")
            for rubbish in ("*/*_logs/*", "*/*_priv/*.lock", "head/pgsql.forupgrade"):
                for path in glob.glob(f"{new}/{rubbish}"):
                    subprocess.run(["rm", "-rf", path], check=True)
            os.rename(new, self.template)

    # --- daemons ---

    def _first_start(self, name):
        done = self.cluster.run([f"{self.exec}/libexec/pbs_habitat"], node=name, cwd="/")
        if done.rc != 0:
            raise ClusterError(f"pbs_habitat on {name} failed: {done.out}{done.err}")

    def _start(self, name, *daemons):
        for daemon in daemons:
            done = self.cluster.run([f"{self.exec}/sbin/{daemon}"], node=name, cwd="/")
            if done.rc != 0:
                raise ClusterError(f"{daemon} on {name} did not start: {done.out}{done.err}")

    def start_head(self):
        ctl = self.cluster.ctl
        ctl.run(["install", "-d", "-o", "postgres", "/run/postgresql"])  # the database's socket
        if self.making:
            self._first_start("ctl")
            config = ctl.path(f"{HOME}/sched_priv/sched_config")
            with open(config, encoding="utf-8") as f:
                text = f.read()
            with open(config, "w", encoding="utf-8") as f:
                f.write(re.sub(r'^resources: "', 'resources: "ngpus, ', text, flags=re.M))
        self._start("ctl", "pbs_comm", "pbs_server")
        until(lambda: ctl.run(["qstat", "-B"]).rc == 0, LIMIT, "pbs_server answers")
        self._qmgr(SERVER if self.making else self._nodes())
        self._start("ctl", "pbs_sched")

    def stop_head(self):
        """Stop the server as a site does, so that its database stays consistent."""
        ctl = self.cluster.ctl
        ctl.run(["qterm", "-t", "immediate"])

        def left():
            return [p.cmdline for p in self.cluster.all_processes("ctl") if "postgres" in p.cmdline or "pbs_server" in p.cmdline]
        until(lambda: not left(), LIMIT, lambda: f"server and database end: {left()}")

    def _nodes(self):
        options, lines = self.cluster.options, []
        for name in self.cluster.names:
            lines += [f"create node {name}", f"set node {name} resources_available.ncpus = {options.cpus}",
                      f"set node {name} resources_available.ngpus = {options.gpus}"]
        lines.append("set queue workq kill_delay = 60")  # the time between SIGTERM and SIGKILL; 10 s by default
        return "\n".join(lines) + "\n"

    def _qmgr(self, text):
        path = self.cluster.write("qmgr", text)
        done = self.cluster.ctl.run(["sh", "-c", f"qmgr < {path}"])
        if done.rc != 0:
            raise ClusterError(f"qmgr: {done.err}")

    def start_node(self, name):
        if self.making:
            self._first_start(name)
        lock = self.cluster.machines[name].path(f"{HOME}/mom_priv/mom.lock")
        if os.path.exists(lock):  # left by a crash
            os.unlink(lock)
        self._start(name, "pbs_mom")

    def wait_lost(self, name):
        """Wait until the server knows that the node is down. Of a mom that restarts earlier, it may regard the old connection as
        alive, and the node stays away."""
        until(lambda: "down" in self.states().get(name, ""), LIMIT, lambda: f"{name} down: {self.states()}\n{self.cluster.logs()}")

    # --- inspection ---

    def logs(self, name):
        return glob.glob(f"{self._home(name)}/*_logs/*")

    def states(self):
        if self.making:
            return {name: "idle" for name in self.cluster.names}
        found, name = {}, None
        for line in self.cluster.ctl.run(["pbsnodes", "-a"]).out.splitlines():
            word, _, value = (part.strip() for part in line.partition("="))
            if line and not line[0].isspace():
                name = line.strip()
            elif word == "state":
                found[name] = "idle" if value == "free" else value
            elif word == "jobs" and found[name] == "idle":
                found[name] = f"busy with {value}"
        return found

    def jobs(self):
        return self.cluster.ctl.run(["qselect"]).out.split()

    def end_jobs(self):
        jobs = self.jobs()
        if jobs:
            self.cluster.ctl.run(["qdel", "-W", "force", *jobs])


def _copy(source, target):
    subprocess.run(["cp", "-a", source, target], check=True)
