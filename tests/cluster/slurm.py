"""Slurm on the machines of a cluster: slurmctld on ctl, slurmd on each node, munge between them."""

import os
import time

import proc
from machine import LIMIT, until
from scheduler import Scheduler

SLURM_CONF = """\
ClusterName=dd
SlurmctldHost=ctl({ctl})
SlurmUser=root
SlurmdUser=root
StateSaveLocation={base}/state
SlurmdSpoolDir=/run/slurmd.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=/run/munge/slurm.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=10000,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
GresTypes=gpu
KillWait={kill_wait}
SlurmdTimeout={slurmd_timeout}
SlurmctldTimeout=10
MessageTimeout=15
TCPTimeout=2
UnkillableStepTimeout=20
CompleteWait=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""

PARTITIONS = """\
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def slurm_conf(base, options, ctl, nodes):
    """Return slurm.conf. nodes: (name, host name, address) of each; ctl: the controller's address."""
    text = SLURM_CONF.format(base=base, ctl=ctl, kill_wait=options.kill_wait, slurmd_timeout=options.slurmd_timeout)
    if options.mpi_ports:
        text += f"MpiParams=ports={options.mpi_ports}\n"
    if options.family == 6:
        text += "CommunicationParameters=EnableIPv6,DisableIPv4\n"
    gres = f" Gres=gpu:{options.gpus}" if options.gpus else ""
    for name, hostname, address in nodes:
        text += (f"NodeName={name} NodeHostname={hostname} NodeAddr={address} CPUs={options.cpus} "
                 f"RealMemory=4000{gres}\n")
    lines = options.slurm + (MEMORY_LINES if options.memory else [])
    keys = {line.partition("=")[0] for line in lines}
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in keys]
    return "".join(line + "\n" for line in [*kept, *PARTITIONS.splitlines(), *lines])


def gres_conf(options):
    return f"Name=gpu File=/run/gpu[0-{options.gpus - 1}]\n" if options.gpus else ""


# Without options.memory, Slurm uses no cgroup, and needs none on the host.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
MEMORY_CONF = "ConstrainRAMSpace=yes\nAllowedRAMSpace=100\n"
MEMORY = "/sys/fs/cgroup/memory"
MEMORY_LINES = ["TaskPlugin=task/cgroup", "SelectTypeParameters=CR_Core_Memory", "DefMemPerNode=200"]


def no_memory_limits():
    """Return why Slurm cannot limit the memory of steps on this host (Options.memory), or None. Names of nodes must differ from
    those of all other clusters then, because slurmd makes the cgroup slurm_NODE, which clean_up() removes."""
    if not os.path.exists(f"{MEMORY}/cgroup.procs"):
        return "no version 1 of cgroups for memory: with version 2, slurmd asks systemd, which no node has"
    return None if os.access(f"{MEMORY}/cgroup.procs", os.W_OK) else "the cgroups of this host cannot be changed"


class Slurm(Scheduler):
    needs = {"slurmctld": ["slurmctld"], "slurmd": ["slurmd"], "slurm-client": ["srun", "sinfo", "scancel", "squeue"]}
    daemons = ("slurmd", "slurmctld")
    node_daemon = "slurmd"

    def __init__(self, cluster):
        super().__init__(cluster)
        self.env = {"SLURM_CONF": f"{cluster.base}/slurm.conf"}

    def write_files(self):
        made = self.cluster
        nodes = [(name, hostname, made.address(name)) for name, hostname in zip(made.names, made.hostnames)]
        made.write("slurm.conf", slurm_conf(made.base, made.options, made.address("ctl"), nodes))
        made.write("gres.conf", gres_conf(made.options))
        made.write("cgroup.conf", CGROUP_CONF + (MEMORY_CONF if made.options.memory else ""))

    def start_head(self):
        """Start slurmctld; return when it listens: a client that calls earlier waits a second before it retries."""
        ctl = self.cluster.ctl
        ctl.daemon(["slurmctld", "-D", "-c"], "slurmctld")
        until(lambda: proc.is_listening(ctl.init.pid, 6817), LIMIT, lambda: f"slurmctld listens: {ctl.log('slurmctld')}")

    def start_node(self, name):
        self.cluster.machines[name].daemon(["slurmd", "-D", "-N", name], "slurmd")

    def clean_up(self):
        places = [f"{MEMORY}/slurm_{name}" for name in self.cluster.names] if self.cluster.options.memory else []
        end = time.monotonic() + LIMIT
        while places and time.monotonic() < end:  # a process that was killed belongs to its cgroup until it is reaped
            for place in places:
                for at, _, _ in os.walk(place, topdown=False):
                    try:
                        os.rmdir(at)
                    except OSError:
                        pass
            places = [place for place in places if os.path.isdir(place)]
            time.sleep(0.02 if places else 0)

    def states(self):
        done = self.cluster.ctl.run(["sinfo", "-h", "-p", "main", "-N", "-o", "%N %T"])
        return dict(line.split() for line in done.out.splitlines()) if done.rc == 0 else {}

    def jobs(self):
        return self.cluster.ctl.run(["squeue", "-h"]).out.splitlines()

    def end_jobs(self):
        jobs = self.cluster.ctl.run(["squeue", "-h", "-o", "%A"]).out.split()
        if jobs:
            self.cluster.ctl.run(["scancel", *jobs])
