"""Where the fault matrix runs its jobs: one worker per node; the processes of every node are known.

    with BEDS["simulated"]("elastic") as job:
        first = job.after(-1, (3,))
        job.signal("worker", job.nodes[1])
        second = job.after(first[0]["round"], (3,))
        job.release()
        codes = job.wait()
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "cluster")]

from cluster import Options, up, why_not  # noqa: E402
from support import DDRUN, LIMIT, PYTHON, clean_env, comm, kill_marked, marked, parent, until  # noqa: E402
from table import NODES, OPTIONS  # noqa: E402

HEARTBEAT = 20  # several times as long as a busy machine stalls one process
USUAL = ("--nproc-per-node=1", "--max-restarts=1", f"--rejoin-timeout={HEARTBEAT}s", "--shutdown-timeout=5s",
         f"--heartbeat={HEARTBEAT}s")


# ddrun's preloaded library is not for Python.
WORKER = ("env", "-u", "LD_PRELOAD", PYTHON, str(HERE / "worker.py"))


class Bed:
    """One job. Subclasses start its nodes and find its processes."""

    crashed = None  # the node that has crashed

    def __init__(self, mode, *options, prepare=None):
        self.mode, self.options, self.prepare = mode, options, prepare or (lambda job: None)
        self.env = {}  # {node} in a value is the node's name
        self.nodes = []
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self.make()
            self.prepare(self)
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self.stack.close()

    # --- what the job reports ---

    def lines(self):
        """Return the reports of all workers of all rounds; each may follow a label."""
        return [json.loads(line[line.index("{"):]) for line in self.out().splitlines(keepends=True) if line.endswith("}\n")]

    def after(self, number, sizes):
        """Return the workers, in rank order, of the first complete round after `number` that has one of these sizes."""
        def complete():
            ended = self.ended()
            lines = self.lines()
            for wanted in sorted({line["round"] for line in lines if line["round"] > number}):
                workers = [line for line in lines if line["round"] == wanted]
                if len(workers) == workers[0]["size"] and len(workers) in sizes:
                    return sorted(workers, key=lambda line: line["rank"])
            assert not ended, f"the job ended: {self.err()}"
            return None
        try:
            return until(complete, LIMIT, f"a round of {sizes} workers after round {number}")
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.out()}{self.err()}") from None

    def release(self):
        Path(self.go).touch()

    # --- its processes ---

    def pid(self, kind, node):
        """Return the outer pid of a node's guardian, agent, daemon or worker, or None if there is none."""
        rows = self.processes(node)
        ddrun = {pid for pid, _, name in rows if name == "ddrun"}
        guardians = {up for pid, up, _ in rows if pid in ddrun and up in ddrun}
        agents = ddrun - guardians
        found = {"guardian": guardians,
                 "agent": agents,
                 "daemon": {pid for pid, _, name in rows if name == "ddrund"},
                 "worker": {pid for pid, up, name in rows if up in agents and name.startswith("python")}}[kind]
        assert len(found) < 2, f"more than one {kind} on {node}: {rows}"
        return found.pop() if found else None

    def inner_pid(self, kind, node):
        """Return that pid as the node numbers it."""
        with open(f"/proc/{self.pid(kind, node)}/status", encoding="ascii") as f:
            return next(int(line.split()[-1]) for line in f if line.startswith("NSpid:"))

    def leader(self):
        return until(lambda: next((node for node in self.nodes if self.pid("daemon", node)), None), say="a daemon")

    def signal(self, kind, node, sig=signal.SIGKILL):
        os.kill(self.pid(kind, node), sig)

    def limit(self, kind, node, which, soft):
        pid = self.pid(kind, node)
        resource.prlimit(pid, which, (soft, resource.prlimit(pid, which)[1]))

    def signal_all(self, node, sig):
        """Signal every process of the job on this node."""
        for pid, _, _ in self.processes(node):
            with contextlib.suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, sig)


class Simulated(Bed):
    """Each node is a separate ddrun on this machine, with a loopback address; the nodes share a HOME."""

    def make(self):
        self.place = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="faults")))
        self.go, self.home = self.place / "go", self.place / "home"
        self.home.mkdir()
        self.nodes = [f"127.0.7.{i + 1}" for i in range(NODES[self.mode])]
        self.marks, self.popen = {}, {}
        self.id = f"faults.{uuid.uuid4().hex[:8]}"  # the ports follow from it
        self.shm = set(os.listdir("/dev/shm"))

    def start(self):
        for rank, node in enumerate(self.nodes):
            self._start(node, self._found_by(rank))

    def _found_by(self, rank):
        if self.mode == "etcd":
            return [f"--rdzv-endpoint=etcd://{self._etcd().host}/jobs", f"--rdzv-id={self.id}", f"--local-addr={self.nodes[rank]}"]
        return [f"--hosts=127.0.7.[1-{len(self.nodes)}]", f"--node-rank={rank}", "--munge-socket=/nonexistent"]

    def _etcd(self):
        from test_etcd import Etcd
        if not hasattr(self, "etcd"):
            self.etcd = Etcd()
            self.stack.callback(self.etcd.close)
        return self.etcd

    def _start(self, node, found_by):
        mark = self.marks[node] = "DDRUN_TEST_MARK=" + uuid.uuid4().hex
        tmp = self.place / f"tmp.{node}"
        tmp.mkdir()
        env = clean_env(HOME=str(self.home), TMPDIR=str(tmp), DDRUN_TEST_MARK=mark.partition("=")[2], FAULTS_NODE=node)
        env.update({name: value.replace("{node}", node) for name, value in self.env.items()})
        self.stack.callback(kill_marked, mark)
        with open(self.place / f"out.{node}", "wb") as out, open(self.place / f"err.{node}", "wb") as err:
            self.popen[node] = subprocess.Popen(
                [DDRUN, *found_by, *OPTIONS[self.mode], *USUAL, *self.options, *WORKER, self.go],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        self.stack.callback(self.popen[node].wait)
        self.stack.callback(self.popen[node].kill)

    def _text(self, what):
        return "".join((self.place / f"{what}.{node}").read_text(errors="replace") for node in self.nodes)

    def name(self, node):
        """Return ddrun's name of the node."""
        return socket.gethostname() if self.mode == "etcd" else node

    def out(self):
        return self._text("out")

    def err(self):
        return self._text("err")

    def ended(self):
        return all(p.poll() is not None for p in self.popen.values())

    def processes(self, node):
        return [(pid, parent(pid), comm(pid)) for pid in marked(self.marks[node])]

    def mount(self, name, options):
        """Mount a tmpfs with these options below the job's directory, for all nodes."""
        mount_tmpfs(subprocess.run, self.place / name, options)
        self.stack.callback(subprocess.run, ["umount", "--lazy", self.place / name], check=True)

    def crash(self, node):
        """Kill all processes of a node at once: none of them observes the end of another."""
        self.signal_all(node, signal.SIGSTOP)
        self.signal_all(node, signal.SIGKILL)
        self.crashed = node

    def wait_others(self, node):
        """Wait until the job has ended on all nodes but this one."""
        for other, p in self.popen.items():
            if other != node:
                p.wait(timeout=LIMIT)

    def wait(self):
        """Return {node: exit code}; the code is negative after a signal."""
        return {node: p.wait(timeout=LIMIT) for node, p in self.popen.items()}

    def assert_nothing_left(self):
        left = [(node, pid, comm(pid)) for node, mark in self.marks.items() for pid in marked(mark)]
        # the files of a crashed node are on its own disk
        left += [str(path) for node in self.nodes if node != self.crashed for path in (self.place / f"tmp.{node}").iterdir()]
        left += sorted(set(os.listdir("/dev/shm")) - self.shm)
        assert left == [], f"left behind: {left}"


class Slurm(Bed):
    """A step on the nodes of a cluster; each node writes its exit code to a file when its ddrun has ended."""

    made = None  # the cluster, shared by all jobs of this process

    @classmethod
    def cluster(cls):
        if cls.made is None:
            cls.made = up(Options(slurmd_timeout=300, share=[str(HERE.parent), os.path.dirname(DDRUN), *prefixes()]))
        for node in cls.made.names:
            if not cls.made.machines[node].up():
                cls.made.start(node)
                cls._set_state(cls.made, node, "resume")
        cls.made.reset()
        return cls.made

    @classmethod
    def down(cls):
        if cls.made is not None:
            cls.made.down()
            cls.made = None

    def make(self):
        self.slurm = self.cluster()
        self.nodes = self.slurm.names[:NODES[self.mode]]
        self.before = self.slurm.snapshot()
        self.place = Path(self.slurm.directory("faults"))
        self.go = self.place / "go"
        self.stack.callback(shutil.rmtree, self.place, ignore_errors=True)

    def start(self):
        script = self.place / "node"
        variables = " ".join(f'{name}="{value}"' for name, value in self.env.items()).replace("{node}", "$SLURMD_NODENAME")
        script.write_text(f"""#!/bin/sh
export FAULTS_NODE=$SLURMD_NODENAME
{variables} "{DDRUN}" "$@"
code=$?
echo $code > {self.place}/code.$SLURMD_NODENAME.new
mv {self.place}/code.$SLURMD_NODENAME.new {self.place}/code.$SLURMD_NODENAME
""")
        script.chmod(0o755)
        how = self._etcd() if self.mode == "etcd" else []
        argv = ["srun", f"-N{len(self.nodes)}", "-w", ",".join(self.nodes), "--no-kill", "--kill-on-bad-exit=0", "--wait=0", str(script),
                *how, *OPTIONS[self.mode], *USUAL, *self.options, *WORKER, str(self.go)]
        self.run = self.stack.enter_context(self.slurm.popen(argv, cwd=str(self.place), env={"PYTHON_EXEC": PYTHON}))

    def _etcd(self):
        url = f"http://{self.slurm.address('ctl')}:2379"
        etcd = self.slurm.popen([shutil.which("etcd"), "--data-dir", str(self.place / "etcd"), "--listen-client-urls", url,
                                 "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:2380"])
        self.stack.enter_context(etcd)
        etcd.wait_for("ready to serve client requests")
        return [f"--rdzv-endpoint=etcd://{self.slurm.address('ctl')}:2379/jobs", "--rdzv-id=faults"]

    def name(self, node):
        return node

    def out(self):
        return self.run.out

    def err(self):
        return self.run.err

    def ended(self):
        return self.run.rc is not None

    def processes(self, node):
        return [(p.outer, p.parent, comm(p.outer)) for p in self.slurm.processes(node)
                if "slurmstepd" not in p.cmdline and not p.cmdline.startswith("/bin/sh")]

    def mount(self, name, options):
        for node in self.nodes:
            mount_tmpfs(lambda argv, node=node, **_: self.slurm.run(argv, node=node), self.place / name, options)
            self.stack.callback(self.slurm.run, ["umount", "--lazy", str(self.place / name)], node=node)

    def crash(self, node):
        self.slurm.crash(node)
        self.crashed = node

    def cut(self, node):
        self.slurm.cut(node)

    def heal(self, node):
        self.slurm.heal(node)

    def codes(self):
        return {node: int((self.place / f"code.{node}").read_text()) for node in self.nodes if (self.place / f"code.{node}").exists()}

    def wait_others(self, node):
        until(lambda: self.ended() or set(self.codes()) >= set(self.nodes) - {node}, LIMIT, "the end on all other nodes")

    def wait(self):
        if self.crashed:  # srun waits for its task until Slurm sets the node down
            self._set_state(self.slurm, self.crashed, "down")
        self.run.wait(LIMIT)
        return self.codes()

    @staticmethod
    def _set_state(cluster, node, state):
        cluster.run(["scontrol", "update", f"nodename={node}", f"state={state}", "reason=test"])

    def assert_nothing_left(self):
        self.slurm.assert_nothing_left(self.before)


def mount_tmpfs(run, path, options):
    """Mount a tmpfs with these options; if they set a size, fill it."""
    run(["mkdir", "-p", str(path)], check=True)
    run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    if "size=" in options:
        run(["sh", "-c", f"cat /dev/zero > {path}/filler; true"], check=True, stderr=subprocess.DEVNULL)


def prefixes():
    code = "import sys; print(sys.prefix); print(sys.base_prefix)"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def why_not_here(bed, mode):
    """Return why this bed cannot be made on this machine, or None."""
    if mode == "etcd" and shutil.which("etcd") is None:
        return "etcd is not installed (Debian: etcd-server)"
    return why_not() if bed == "slurm" else None


BEDS = {"simulated": Simulated, "slurm": Slurm}
