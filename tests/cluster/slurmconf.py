"""The files that make a set of machines a Slurm cluster: text only."""

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
    """`nodes`: (name, host name, address) of each; `ctl`: the controller's address."""
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


# No cgroup is used, and none need be there.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"

NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
