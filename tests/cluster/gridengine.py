"""Grid Engine on the machines of a cluster: sge_qmaster on ctl, sge_execd on each node; a parallel environment "mpi".

The packages are Debian's: unpacked by contrib/gridengine and mounted at their places in the machines, or installed."""

import glob
import os
import subprocess

from machine import LIMIT, PATH, ClusterError, until
from openpbs import CACHE
from scheduler import Scheduler

ROOT, SPOOL = "/var/lib/gridengine", "/var/spool/gridengine"
PROGRAMS, DATA = "/usr/lib/gridengine", "/usr/share/gridengine"
COMMANDS = ("qsub", "qdel", "qstat", "qrsh", "qconf")

BOOTSTRAP = f"""\
admin_user none
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params {SPOOL}/spooldb
binary_path {PROGRAMS}
qmaster_spool_dir {SPOOL}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""

# A number as allocation rule: so many slots on each host. control_slaves permits qrsh -inherit.
PARALLEL = """\
pe_name mpi
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $round_robin
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""

HOSTS = """\
group_name @nodes
hostlist {names}
"""


def unpacked():
    """Return the directory that contrib/gridengine has made on this host, or None."""
    said = os.environ.get("DDRUN_GRIDENGINE")
    found = [said] if said else glob.glob(f"{CACHE}/gridengine-*")
    return next((place for place in found if os.path.exists(f"{place}/complete")), None)


class GridEngine(Scheduler):
    daemons = ("sge_qmaster", "sge_execd")
    node_daemon = "sge_execd"

    def __init__(self, cluster):
        super().__init__(cluster)
        self.unpacked = unpacked()
        self.env = {"PATH": f"{PATH}:{PROGRAMS}", "SGE_ROOT": ROOT, "SGE_CELL": "default"}

    @classmethod
    def why_not(cls):
        if unpacked() or os.access(f"{PROGRAMS}/sge_qmaster", os.X_OK):
            return None
        return "no Grid Engine is installed here, and none has been unpacked (contrib/gridengine)"

    def _place(self, name):
        return f"{self.cluster.base}/machines/{name}/spool"

    def binds(self, name):
        places = {ROOT: f"{self.cluster.base}/sge", SPOOL: self._place(name)}
        if self.unpacked:
            places |= {place: self.unpacked + place for place in (PROGRAMS, DATA)}
            places |= {f"/usr/bin/{command}": f"{self.unpacked}{DATA}/gridengine-wrapper" for command in COMMANDS}
        return places

    def write_files(self):
        made = self.cluster
        common = f"{made.base}/sge/default/common"
        os.makedirs(common)
        for name in ("util", "utilbin", "lib"):  # links to DATA and PROGRAMS
            subprocess.run(["cp", "-a", f"{self.unpacked or ''}{ROOT}/{name}", f"{made.base}/sge/"], check=True)
        made.write("sge/default/common/bootstrap", BOOTSTRAP)
        made.write("sge/default/common/act_qmaster", "ctl\n")
        for name in made.machines:
            for place in ("spooldb", "qmaster/job_scripts", "execd"):
                os.makedirs(f"{self._place(name)}/{place}")

    def _ctl(self, *argv):
        done = self.cluster.ctl.run(argv)
        if done.rc != 0:
            raise ClusterError(f"{' '.join(argv)}: {done.out}{done.err}")
        return done.out

    def start_head(self):
        made = self.cluster
        self._ctl(f"{DATA}/scripts/init_cluster", ROOT, "default", f"{SPOOL}/spooldb", "root")
        self._ctl("sge_qmaster")
        until(lambda: made.ctl.run(["qconf", "-sh"]).rc == 0, LIMIT, "sge_qmaster answers")
        for name in made.names:
            self._ctl("qconf", "-ah", name)
            self._ctl("qconf", "-as", name)
        self._ctl("qconf", "-as", "ctl")
        self._ctl("qconf", "-Ap", made.write("pe", PARALLEL))
        self._ctl("qconf", "-Ahgrp", made.write("hosts", HOSTS.format(names=" ".join(made.names))))
        self._queue()
        self._scheduler()

    def _changed(self, show, **values):
        """Return the text that qconf shows, with other values."""
        lines = [line.split(None, 1) for line in self._ctl("qconf", *show).replace("\\\n", " ").splitlines() if line.strip()]
        return "".join(f"{name} {values.get(name, value[0] if value else '')}\n" for name, *value in lines)

    def _queue(self):
        text = self._changed(["-sq"], qname="all.q", hostlist="@nodes", slots=self.cluster.options.cpus, pe_list="mpi", shell="/bin/bash",
                             load_thresholds="NONE")  # the host may be busy
        self._ctl("qconf", "-Aq", self.cluster.write("queue", text))

    def _scheduler(self):
        """Configure the scheduler to start jobs at once."""
        text = self._changed(["-ssconf"], schedule_interval="0:0:1", flush_submit_sec=1, flush_finish_sec=1, job_load_adjustments="NONE")
        self._ctl("qconf", "-Msconf", self.cluster.write("sched", text))
        text = self._changed(["-sconf"], load_report_time="00:00:02", max_unheard="00:00:20", reporting_params="accounting=false reporting=false")
        self._ctl("qconf", "-Mconf", self.cluster.write("global", text))

    def start_node(self, name):
        done = self.cluster.run(["sge_execd"], node=name, cwd="/")
        if done.rc != 0:
            raise ClusterError(f"sge_execd on {name} did not start: {done.out}{done.err}")

    def logs(self, name):
        return glob.glob(f"{self._place(name)}/**/messages", recursive=True)

    def states(self):
        """Return the state of each node's queue instance: idle if it has no error letter and no slot in use."""
        found = {}
        for line in self.cluster.ctl.run(["qstat", "-f", "-u", "*"]).out.splitlines():
            word = line.split()
            if word and word[0].startswith("all.q@"):
                used = word[2].split("/")[1]
                found[word[0][len("all.q@"):]] = word[5] if len(word) > 5 else "idle" if used == "0" else f"{used} slots"
        return found

    def jobs(self):
        return [line for line in self.cluster.ctl.run(["qstat", "-u", "*"]).out.splitlines()[2:] if line.strip()]

    def end_jobs(self):
        if self.jobs():
            self.cluster.ctl.run(["qdel", "-f", "-u", "*"])
