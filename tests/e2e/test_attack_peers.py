"""Another user of a job's nodes poses as the job's user: by the ports of closed connections, and by user namespaces."""

import os
import signal
import subprocess
import tempfile

import pytest

from cluster import until
from support import BUILD, DDRUN, LIMIT, Job, clean_env, command_as, program, without_tips

PYTHON3 = "/usr/bin/python3"
KEY = "stolen"
SOURCE = 9234  # below the ephemeral ports, so no other connection of the node has it

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


class Victim:
    """A job of alice on node1 and node2; its workers wait to be ended."""

    def __init__(self, nodes):
        self.nodes = nodes
        env = {"PYTHON_EXEC": PYTHON3, "DDRUN_KEY": os.urandom(32).hex()}
        self.runs = [nodes.popen([DDRUN, "--hosts=node[1-2]", "--rdzv-id=victim", "--nproc-per-node=1", "--heartbeat=60s",
                                  "--shutdown-timeout=1s", program("tell_store.py")], node=name, user="alice", env=env)
                     for name in ("node1", "node2")]

    def __enter__(self):
        _, self.host, self.port = until(lambda: self.runs[0].out if "\n" in self.runs[0].out else None, LIMIT,
                                        lambda: self.runs[0].err + self.runs[1].err).split()
        return self

    def signal_agent(self, sig):
        """Signal the agent of node2, not its guardian: nsenter stops together with the guardian."""
        ddruns = [p for p in self.nodes.processes("node2") if os.path.basename(p.cmdline.split()[0]) == "ddrun"]
        agents = [p for p in ddruns if p.parent in {q.outer for q in ddruns}]
        assert len(agents) == 1, ddruns
        self.nodes.kill("node2", agents[0].pid, sig)

    def call(self, source=0, times=1, node="node2"):
        return self.nodes.popen([PYTHON3, program("store_caller.py"), self.host, self.port, KEY, str(source), str(times)],
                                node=node, user="alice")

    def accepts(self, source):
        """True if ddrund has accepted the connection from that port of node2."""
        with open(f"/proc/{self.nodes.machines['node1'].init.pid}/net/tcp6", encoding="ascii") as f:
            lines = [line.split() for line in f]
        remote = f":{source:04X}"
        return any(words[2].endswith(remote) and words[9] != "0" for words in lines[1:])

    def __exit__(self, *exc):
        self.runs[0].signal(signal.SIGTERM)
        codes = [run.wait(LIMIT).rc for run in self.runs]
        for run in self.runs:
            run.__exit__(None, None, None)
        assert exc[0] is not None or codes == [143, 143], "the attacked job goes on to its end"


def steal(victim, mode, *args):
    return victim.nodes.popen([PYTHON3, program("port_thief.py"), mode, victim.host, victim.port, KEY, *args], node="node2", user="bob")


def test_bytes_of_a_reset_connection_are_not_taken_for_those_of_the_next_on_its_port(cluster):
    """ddrund asks the slow agent of node2 while the attacker has the port, and the agent looks when the worker has it."""
    place = cluster.directory("steal", "bob")
    with Victim(cluster) as victim:
        victim.signal_agent(signal.SIGSTOP)
        try:
            with steal(victim, "once", str(SOURCE), f"{place}/reset") as thief:
                thief.wait_for("sent")
                until(lambda: victim.accepts(SOURCE), LIMIT, lambda: "ddrund takes the stranger's connection")
                open(f"{place}/reset", "w").close()
                thief.wait_for("reset")
            with victim.call(SOURCE) as worker:
                worker.wait_for("connected")
                victim.signal_agent(signal.SIGCONT)
                assert worker.wait(LIMIT).out.endswith("absent\n"), worker.out
                assert "refused 0" in worker.out, worker.out
        finally:
            victim.signal_agent(signal.SIGCONT)
        with victim.call(node="node1") as worker:
            assert worker.wait(LIMIT).out.endswith("absent\n"), worker.out


def test_a_stranger_who_resets_connections_all_the_time_gets_nothing_into_the_store(cluster):
    """node2 has few ports, so the worker and the attackers reuse each other's. No process is stopped."""
    def set_ports(text):
        done = cluster.run(["sysctl", "-q", "-w", f"net.ipv4.ip_local_port_range={text}"], node="node2")
        assert done.rc == 0, done.err
    before = cluster.run(["sysctl", "-n", "net.ipv4.ip_local_port_range"], node="node2").out.split()
    with Victim(cluster) as victim:
        set_ports("41000 41007")
        thieves = [steal(victim, "loop") for _ in range(3)]
        try:
            for thief in thieves:
                thief.wait_for("100")
            with victim.call(times=2000) as worker:
                assert worker.wait(LIMIT).out.endswith("absent\n"), worker.out
        finally:
            for thief in thieves:
                thief.signal(signal.SIGKILL)
                thief.__exit__(None, None, None)
            set_ports(" ".join(before))
        with victim.call(node="node1") as worker:
            assert worker.wait(LIMIT).out.endswith("absent\n"), worker.out


# ---- user namespaces: every uid without a mapping reads as 65534 --------------------------------------------------------

USER, STRANGER = 20001, 20002
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def home():
    """Yield a directory of USER that the test's own user can list, too."""
    with tempfile.TemporaryDirectory(prefix="e2e") as place:
        os.chown(place, USER, USER)
        yield place


def run_as_user(before, *args, home):
    with Job(*args, home=home, tmp=home, cwd="/", before=command_as(USER, *before)) as job:
        job.wait(LIMIT)
        return job


OVERFLOWN = [["unshare", "-U"], ["unshare", "--map-user=65534"]]


@root_only
@pytest.mark.parametrize("before", OVERFLOWN, ids=["unmapped", "mapped"])
def test_a_job_of_the_overflow_uid_is_refused(home, before):
    job = run_as_user(before, "true", home=home)
    assert job.p.returncode == 2, job.err
    assert "uid 65534" in job.err and len(without_tips(job.err)) == 1, job.err


@root_only
def test_a_job_of_the_overflow_uid_runs_where_all_uids_are_mapped(home):
    os.chown(home, 65534, 65534)
    with Job("true", home=home, tmp=home, cwd="/", before=command_as(65534)) as job:
        assert job.wait(LIMIT) == 0, job.err


@root_only
def test_ddctl_of_the_overflow_uid_trusts_no_agent(home):
    done = subprocess.run(command_as(USER, "unshare", "-U", os.path.join(BUILD, "ddctl"), "status"), capture_output=True, text=True,
                          cwd="/", check=False, timeout=LIMIT)
    assert done.returncode == 1 and "uid 65534" in done.stderr, done


HIDE_PROC = """
import ctypes, os, sys
CLONE_NEWUSER, CLONE_NEWNS, MS_REC, MS_PRIVATE, PR_SET_DUMPABLE = 0x10000000, 0x20000, 0x4000, 0x40000, 4
libc = ctypes.CDLL(None)
assert libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0
with open("/proc/self/uid_map", "w") as f:
    f.write(f"65534 {sys.argv[1]} 1")
assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0 and libc.mount(b"none", b"/proc", b"tmpfs", 0, None) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


@root_only
def test_a_store_of_the_overflow_uid_is_refused_where_there_is_no_proc(home):
    ddrund = [os.path.join(BUILD, "ddrund"), "--listen=127.0.0.1:0"]
    done = subprocess.run(command_as(USER, PYTHON3, "-c", HIDE_PROC, str(USER), *ddrund), capture_output=True, text=True, cwd="/",
                          check=False, timeout=LIMIT, env={"DDRUN_KEY": os.urandom(32).hex()})
    assert done.returncode == 2 and "uid 65534" in done.stderr, done


CALL_AGENT = r"""
import re, socket, time
names = set(re.findall(r"@(ddrun-ctl/\S+)", open("/proc/net/unix").read()))
served = 0
for name in names:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        try:
            s.connect("\0" + name)
            served += s.recv(1) != b""
        except OSError:
            pass
print(len(names) > 0, served)
"""


@root_only
@pytest.mark.parametrize("before", OVERFLOWN, ids=["unmapped", "mapped"])
def test_an_agent_of_the_overflow_uid_serves_no_stranger(home, before):
    """--insecure opens the store, not the agent, which would end the job on request."""
    with Job("--insecure", "--nproc-per-node=1", program("tell_store.py"), home=home, tmp=home, cwd="/",
             env=clean_env(PYTHON_EXEC=PYTHON3), before=command_as(USER, *before)) as job:
        job.line("store")
        called = {}
        for words in (["unshare", "-U"], []):
            done = subprocess.run(command_as(STRANGER, *words, PYTHON3, "-c", CALL_AGENT), capture_output=True, text=True, cwd="/",
                                  check=False, timeout=LIMIT)
            called[len(words)] = done.stdout.strip() or done.stderr
        assert called == {2: "True 0", 0: "True 0"}
        job.p.send_signal(signal.SIGTERM)
        assert job.wait(LIMIT) == 143, job.err


@root_only
def test_in_a_user_namespace_the_own_workers_are_served_and_a_stranger_is_not(home):
    with Job("--nproc-per-node=1", program("tell_store.py"), home=home, tmp=home, cwd="/", env=clean_env(PYTHON_EXEC=PYTHON3),
             before=command_as(USER, "unshare", "--map-current-user")) as job:
        _, host, port = job.line("store").split()
        told = {}
        for words in ([], ["unshare", "-U"]):
            for user in (USER, STRANGER):
                done = subprocess.run(command_as(user, *words, PYTHON3, program("knock.py"), host, port), capture_output=True, text=True,
                                      cwd="/", check=False, timeout=LIMIT)
                told[user, len(words)] = done.stdout.strip() or done.stderr
        assert told == {(USER, 0): "answered", (STRANGER, 0): "turned away", (USER, 2): "answered", (STRANGER, 2): "turned away"}
        job.p.send_signal(signal.SIGTERM)
        assert job.wait(LIMIT) == 143, job.err
