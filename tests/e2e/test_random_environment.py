"""Whole programs under random environments: recorded and invented variables of every scheduler, cut, mixed and broken, with
random options. A start ends by itself, with one of ddrun's exit codes, with one error if that is 2, and leaves nothing.

DDRUN_FUZZ_STARTS  number of starts (default: 300, shared by the four tests)
DDRUN_FUZZ_SEED    seed of the random starts
"""

import ctypes
import fcntl
import glob
import os
import random
import shlex
import shutil
import socket
import struct

import pytest

from support import BUILD, DDRUN, HERE, Job

RECORDED = os.path.join(HERE, "..", "data", "env")
STARTS = int(os.environ.get("DDRUN_FUZZ_STARTS", "300"))
SEED = os.environ.get("DDRUN_FUZZ_SEED", "1")
PARTS = 4
ME = os.uname().nodename
CLONE_NEWNET = 0x40000000

# Schedulers without recorded environments: the variables that src/alloc reads.
MADE_UP = {
    "lsf": {"LSB_JOBID": "7", "LSB_JOBINDEX": "0", "LSB_BATCH_JID": "7", "LSB_MCPU_HOSTS": "node1 4 node2 4", "LSB_HOSTS": "node1 node2",
            "LSB_DJOB_HOSTFILE": "NODEFILE", "LS_JOBPID": "1"},
    "sge": {"JOB_ID": "8", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "NODEFILE", "NHOSTS": "2", "NSLOTS": "8", "PE": "mpi",
            "SGE_ROOT": "/opt/sge"},
    "oar": {"OAR_JOB_ID": "9", "OAR_NODEFILE": "NODEFILE", "OAR_NODE_FILE": "NODEFILE", "OAR_FILE_NODES": "NODEFILE"},
    "cobalt": {"COBALT_JOBID": "10", "COBALT_NODEFILE": "NODEFILE", "COBALT_PARTNAME": "3-4,7", "COBALT_PARTSIZE": "3"},
    "flux": {"FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "2", "FLUX_TASK_RANK": "0", "FLUX_URI": "local:///nowhere/flux", "FLUX_JOB_SIZE": "2",
             "FLUX_ENCLOSING_ID": "f0"},
    "mpi": {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PMIX_RANK": "0", "PALS_NODEID": "0",
            "PALS_RANKID": "0", "PALS_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "ALPS_APP_PE": "0", "JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "3"},
    "torchrun": {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_RDZV_ENDPOINT": "localhost:29400",
                 "PET_NPROC_PER_NODE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "4"},
    "ddrun": {"DDRUN_NODES": "node[1-2]", "DDRUN_ROUND": "0", "DDRUN_NNODES": "2", "DDRUN_KEY": "k" * 32, "DDRUN_LOG_LEVEL": "debug",
              "DDRUN_HOSTS": "node[1-2]", "DDRUN_LABEL": "1", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "2"},
}
VALUES = ["", "0", "1", "2", "-1", "4294967295", "4294967296", "99999999999999999999", "node[1-2]", "node[1-", "node[2-1]", "node1,node1",
          f"{ME},node2", ME, "localhost", "127.0.0.1", "::1", "[::1]:0", "1(x2)", "2(x3),1", "(x2)", "4,,4", "NODEFILE", "/dev/null", "/",
          "/nonexistent", "%s%n%s", "a" * 5000, "\x01\x7f", "\udcff\udcfe", " ", "=", ",", ":", "1:2", "2:1", "none", "undefined", "true"]
WHICH_NODES = [["--nnodes=1"], ["--nnodes=1"], ["--nnodes=2"], ["--nnodes=3"], ["--nnodes=1:2"], ["--nnodes=1:1"], ["--nnodes=0"],
               ["--node-rank=0"], ["--node-rank=1"], ["--node-rank=-1"], ["--nnodes=2", "--node-rank=1"]]
OPTIONS = [
    ["--nproc-per-node=2"], ["--nproc-per-node=gpu"], ["--nproc-per-node=auto"], ["-n", "2"], ["-np", "3"], ["--hosts=node[1-2]"], [f"--hosts={ME}"], [f"--hosts={ME},node2"], [f"-H{ME}:2,{ME}:2"], ["--hostfile=NODEFILE"], ["--hostfile=/nonexistent"],
    ["--standalone"], ["--simulate-nodes=2"], ["--launcher=ssh"], ["--launcher=srun"], ["--launcher=none"], ["--launcher=pbsdsh"],
    ["--launcher=tm"], ["--rdzv-endpoint=localhost"], ["--rdzv-endpoint=node1:0"], ["--rdzv-endpoint=127.0.0.1:29444"],
    ["--rdzv-endpoint=etcd://127.0.0.1:1"], ["--rdzv-backend=c10d"], ["--rdzv-backend=etcd"], ["--rdzv-id=x"], ["--master-addr=127.0.0.1"],
    ["--master-addr=node1"], ["--master-port=29555"], ["--insecure"], ["--max-restarts=1"], ["--label"], ["--mpi=auto"], ["--mpi=pmi1"],
    ["--signal-before-end=USR1@10"], ["--requeue-on=preempt"], ["--health=all"], ["--framework=tensorflow"], ["--timeout=1s"],
    ["--launch-fanout=1"], ["--launch-env=SLURM_*"], ["--numa-binding=node"], ["--log-level=debug"], ["--module"], ["--chdir=/"],
    ["--min-np=1"], ["--max-np=2"], ["--roles=a:1"], ["--stdin=none"], ["--key-file=/nonexistent"], ["--bogus"], ["--horovod"],
]
QUESTIONS = [["hosts"], ["env"], ["status"], ["job"], ["kv", "list"], ["hosts", "--nnodes=1"], ["env", "--nproc-per-node=2"]]


@pytest.fixture(scope="module")
def no_network():
    """Move this thread and its children into a network with nothing but loopback: names do not resolve."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as old:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"needs a network namespace: {os.strerror(ctypes.get_errno())}")
        with socket.socket() as s:  # SIOCSIFFLAGS: IFF_UP
            fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", 1))
        yield
        assert libc.setns(old.fileno(), CLONE_NEWNET) == 0


def recorded():
    found = {}
    for path in sorted(glob.glob(os.path.join(RECORDED, "*.env"))):
        with open(path) as f:
            found[os.path.basename(path)[:-4]] = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)
    return found


ENVIRONMENTS = {**recorded(), **MADE_UP}
# Grouped by the kind of start, so that all kinds are equally frequent, however many processes were recorded of each.
WAYS = {}
for _name in ENVIRONMENTS:
    _way = _name.split(".")[2] if _name.startswith("openpbs") else ".".join(_name.split(".")[:2]).rstrip("0123456789")
    WAYS.setdefault(_way, []).append(_name)


def one_environment(rng, nodefile):
    """Return one or two environments with a few variables changed. Names of nodes are sometimes this machine's."""
    env = {}
    for way in rng.sample(sorted(WAYS), rng.choice((1, 1, 1, 2))):
        env.update(ENVIRONMENTS[rng.choice(WAYS[way])])
    if "PBS_NODEFILE" in env:
        env["PBS_NODEFILE"] = "NODEFILE"
    if rng.random() < 0.4:
        node = rng.choice(("node1", "node2", "node[1-2]", "node[1-3]", "ctl"))
        env = {k: v.replace(node, ME) for k, v in env.items()}
    if rng.random() < 0.3:
        env["SLURM_SUBMIT_HOST"] = ME
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 5))):
        name = rng.choice(sorted(env) or ["X"])
        how = rng.randrange(4)
        if how == 0:
            env.pop(name, None)
        elif how == 1:
            env[name] = rng.choice(VALUES)
        elif how == 2:
            name, value = rng.choice(sorted(ENVIRONMENTS[rng.choice(sorted(ENVIRONMENTS))].items()))
            env[name] = value
        else:
            text = env[name]
            at = rng.randrange(len(text) + 1)
            env[name] = text[:at] + rng.choice("0,-[](x:/ 9") + text[at + rng.randrange(2):]
    with open(nodefile, "w") as f:
        f.write(rng.choice((f"{ME}\nnode2\n", "node1 slots=2\nnode2\n", "", f"{ME}\n{ME}\n", "a b c\n\x01\n", "node1\r\nnode1\r\n")))
    return {k: v.replace("NODEFILE", nodefile) for k, v in env.items()}


def one_start(rng, nodefile):
    """Return program and arguments."""
    if rng.random() < 0.15:
        return [os.path.join(BUILD, "ddctl"), *rng.choice(QUESTIONS)]
    args = [DDRUN, "--rdzv-timeout=300ms", "--last-call=100ms", "--shutdown-timeout=1s"]
    if rng.random() < 0.4:
        args.append("--dry-run")
    if rng.random() < 0.5:
        args += rng.choice(WHICH_NODES)
    for option in rng.sample(OPTIONS, rng.choice((0, 1, 1, 2, 2, 3))):
        args += [word.replace("NODEFILE", nodefile) for word in option]
    return [*args, "true"]


def is_first(env):
    """True for the first process of a launcher, which reports errors on behalf of all."""
    ranks = ("SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PBS_NODENUM", "PALS_RANKID", "JSM_NAMESPACE_RANK",
             "ALPS_APP_PE", "FLUX_TASK_RANK")
    return all(env.get(name, "0") == "0" for name in ranks)


def judge(argv, env, code, err):
    """Return what is wrong with this exit, or ''."""
    if code not in (0, 1, 2) and not (code == 124 and "--timeout=1s" in argv):
        return f"exit code {code}"
    errors = [line for line in err.splitlines() if ": error: " in line]
    if code == 2 and (len(errors) > 1 or (not errors and is_first(env))):
        return f"exit code 2 with {len(errors)} errors"
    return ""


@pytest.mark.parametrize("part", range(PARTS))
def test_a_start_under_any_environment_ends_by_itself_and_gives_its_reason(no_network, tmp_path, part):
    rng = random.Random(f"{SEED}.{part}")
    places = {"PATH": str(tmp_path / "bin"), "PYTHON_EXEC": "/bin/false"}
    (tmp_path / "bin").mkdir()
    for name in ("true", "sh"):  # no scheduler's commands
        os.symlink(shutil.which(name), tmp_path / "bin" / name)
    for i in range(STARTS // PARTS):
        env = {**one_environment(rng, str(tmp_path / "nodes")), **places}
        argv = one_start(rng, str(tmp_path / "nodes"))
        with Job(*argv[1:], program=argv[0], env=env) as job:
            code = job.wait()
            wrong = judge(argv, env, code, job.err)
            again = " ".join(f"{k}={shlex.quote(v)}" for k, v in sorted(env.items()))
            assert not wrong, f"seed {SEED}.{part}, start {i}: {wrong}\nenv -i {again} {shlex.join(argv)}\n{job.out[-2000:]}{job.err[-2000:]}"
            job.assert_nothing_left()
