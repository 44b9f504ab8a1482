"""Slurm on the machines of a cluster: slurmctld on ctl, slurmd on each node, munge between them."""

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
MessageTimeout=5
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
    return text + PARTITIONS + "".join(line + "\n" for line in options.slurm)


def gres_conf(options):
    return f"Name=gpu File=/run/gpu[0-{options.gpus - 1}]\n" if options.gpus else ""


# Slurm uses no cgroup, and needs none on the host.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


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
        made.write("cgroup.conf", CGROUP_CONF)

    def start_head(self):
        """Start slurmctld; return when it listens: a client that calls earlier waits a second before it retries."""
        ctl = self.cluster.ctl
        ctl.daemon(["slurmctld", "-D", "-c"], "slurmctld")
        until(lambda: proc.is_listening(ctl.init.pid, 6817), LIMIT, lambda: f"slurmctld listens: {ctl.log('slurmctld')}")

    def start_node(self, name):
        self.cluster.machines[name].daemon(["slurmd", "-D", "-N", name], "slurmd")

    def states(self):
        done = self.cluster.ctl.run(["sinfo", "-h", "-p", "main", "-N", "-o", "%N %T"])
        return dict(line.split() for line in done.out.splitlines()) if done.rc == 0 else {}

    def jobs(self):
        return self.cluster.ctl.run(["squeue", "-h"]).out.splitlines()

    def end_jobs(self):
        jobs = self.cluster.ctl.run(["squeue", "-h", "-o", "%A"]).out.split()
        if jobs:
            self.cluster.ctl.run(["scancel", *jobs])
