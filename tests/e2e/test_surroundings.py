"""ddrun in an environment that a caller may leave: ignored signals, closed files, a terminal's own signals, a home directory."""

import ctypes
import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess

import pytest

from c10d import VALIDATE
from conftest import DDRUND, Server
from support import DDRUN, LIMIT, Job, clean_env, comm, free_port, marked, program, run, some_line, until


class On:
    """ddrun in the foreground of a terminal of its own, after prepare() in the new process."""

    def __init__(self, *args, env=None, prepare=lambda: None):
        self.mark = f"DDRUN_TEST_MARK=pty-{os.getpid()}-{id(self)}"
        self.seen = ""
        env = dict(env or clean_env(), **dict([self.mark.split("=")]))
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            prepare()
            os.execve(DDRUN, [DDRUN, *args], env)

    def until(self, text, times=1):
        while self.seen.count(text) < times:
            self.seen += os.read(self.fd, 4096).decode()

    def key(self, byte):
        os.write(self.fd, byte)

    def wait(self):
        try:
            while chunk := os.read(self.fd, 4096):
                self.seen += chunk.decode()
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGQUIT])
def test_a_key_of_the_terminal_is_the_only_signal_that_workers_get(nodes, sig):
    """Each worker takes its time to end, so that any other signal would show."""
    job = On(f"--simulate-nodes={nodes}", "--nproc-per-node=2", program("slow_end.py"))
    job.until("ready", 2 * nodes)
    job.key({signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}[sig])
    assert job.wait() == 128 + sig, job.seen
    assert job.seen.count(f"got {int(sig)} only") == 2 * nodes, job.seen
    assert some_line(job.seen, "stopped", sig.name)
    assert marked(job.mark) == []


@pytest.mark.parametrize("nodes", [1, 2])
def test_signals_that_the_caller_ignores_or_blocks_do_not_matter(nodes):
    def careless():
        for sig in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(sig, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})

    job = On(f"--simulate-nodes={nodes}", "--nproc-per-node=2", "sh", "-c", "exit $RANK", prepare=careless)
    assert job.wait() in range(1, 2 * nodes), job.seen
    assert marked(job.mark) == []
    job = On(f"--simulate-nodes={nodes}", "--nproc-per-node=2", program("slow_end.py"), prepare=careless)
    job.until("ready", 2 * nodes)
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait() == 143, job.seen
    assert job.seen.count("got 15 only") == 2 * nodes, job.seen


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_files_are_nobody_elses(closed, tmp_path):
    """No socket of ddrun may take the number of a closed file: workers, and ddrun's messages, would write into the socket."""
    script = "for fd in 0 1 2; do readlink /proc/$$$$/fd/$fd || echo closed; done > $OUT; exit 3"
    # ($$$$: ddrun makes $$ a $, as torchrun does)
    out = tmp_path / "fds"
    env = clean_env(OUT=str(out), PATH=os.environ["PATH"])
    p = subprocess.run([DDRUN, "--output=raw", "--log-level=debug", "sh", "-c", script], env=env, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=lambda: [os.close(fd) for fd in closed])
    assert p.returncode == 3, p.stderr
    fds = out.read_text().splitlines()
    assert {fds[fd] for fd in closed if fd != 1} <= {"/dev/null"}  # 1 is the script's own file


@pytest.fixture(scope="module", params=["de_DE.ISO-8859-1", "tr_TR.ISO-8859-9"])
def foreign_locale(request, tmp_path_factory):
    """Return the environment of a locale with a decimal comma, or with case rules other than ASCII's."""
    source, charset = request.param.split(".")
    if shutil.which("localedef") is None or not os.path.exists(f"/usr/share/i18n/locales/{source}"):
        pytest.skip("no source of this locale (Debian: locales)")
    place = tmp_path_factory.mktemp("locales")
    subprocess.run(["localedef", "-f", charset, "-i", source, place / request.param], check=True)
    return {"LOCPATH": str(place), "LC_ALL": request.param}


def test_the_locale_changes_no_number(foreign_locale):
    locale = foreign_locale["LC_ALL"]
    program_ = ["sh", "-c", 'printf "%s " "$LC_ALL"; env printf "%.1f\\n" 1; exit 3']
    job = run("--nproc-per-node=1", "--heartbeat=2.5s", *program_, env=clean_env(**foreign_locale))
    assert job.p.returncode == 3, job.err
    assert job.out == f"{locale} 1,0\n"  # the worker has it
    assert re.search(r"\d\.\d+ s after the start", job.err), job.err


@pytest.mark.skipif(subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
                    reason="this user may not mount a file system")
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_read_only_tmp_does_not_matter(nodes):
    read_only = """for place in /tmp "$TMPDIR"; do mount --bind "$place" "$place" && mount -o remount,bind,ro "$place"; done
! touch "$TMPDIR/x" 2>/dev/null && ! touch /tmp/x 2>/dev/null && exec "$@" """
    with Job(f"--simulate-nodes={nodes}", "--nproc-per-node=1", "sh", "-c", "exit $((3 * (RANK + 1 == WORLD_SIZE)))",
             before=("unshare", "--mount", "sh", "-c", read_only, "sh")) as job:
        assert job.wait() == 3, job.err
        assert "exit code 3" in job.err
        job.assert_nothing_left()


def test_a_simulated_host_that_cannot_begin_ends_the_other_nodes():
    def poor():
        resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))

    job = On("--simulate-nodes=3", "--nproc-per-node=1", "true", prepare=poor)
    assert job.wait() == 2, job.seen
    assert "Too many open files" in job.seen
    assert marked(job.mark) == []


def test_silent_callers_do_not_keep_others_out():
    daemon = Server(["prlimit", "--nofile=64:64", DDRUND, "--insecure", "--listen=127.0.0.1:0"])
    silent = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(100)]
    try:
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=LIMIT) as client:
            client.sendall(VALIDATE + b"\x0d\x01\x02\x03\x04")
            assert client.recv(4) == b"\x01\x02\x03\x04"
    finally:
        daemon.stop()
        for s in silent:
            s.close()


def is_listening(port):
    def rows():
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}", encoding="ascii") as f:
                yield from f.readlines()[1:]
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in rows())


@pytest.mark.parametrize("host_comes", [True, False])
def test_a_node_that_is_stopped_before_it_has_found_the_host_ends_the_job(host_comes, clock):
    """The node looks once a second, and gives up 2 s after the signal; the host may start more slowly."""
    port = free_port()
    where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--insecure"]
    with Job(*where, "--node-rank=1", "true", env=clean_env(**clock.env)) as guest:
        until(guest.agents, say="the agent")
        clock.stop()
        guest.p.send_signal(signal.SIGTERM)
        if host_comes:
            with Job(*where, "--node-rank=0", "true") as host:
                until(lambda: is_listening(port), say="the host")
                clock.advance(1.5)
                assert host.wait() == 143, host.err
                assert some_line(host.err, "stopped", "SIGTERM")
                host.assert_nothing_left()
        clock.go()
        assert guest.wait() == 143, guest.err
        guest.assert_nothing_left()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process another host name")
def test_nodes_need_no_valid_host_name():
    """The kernel's host name is "(none)" until a program sets it."""
    where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--insecure", "--nproc-per-node=1"]
    unnamed = ("unshare", "--uts", "sh", "-c", 'printf "(none)" >/proc/sys/kernel/hostname && exec "$@"', "sh")
    with Job(*where, "--node-rank=0", "true", before=unnamed) as first, Job(*where, "--node-rank=1", "true", before=unnamed) as other:
        assert (first.wait(), other.wait()) == (0, 0), first.err + other.err


@pytest.mark.parametrize("program_", ["echo said", "kill -9 $PPID"])
def test_a_reader_that_the_shell_started_before_it_became_ddrun_reads_to_the_end(tmp_path, program_):
    # the reader is a child of the process that is ddrun by then
    script = 'exec "$0" --nproc-per-node=1 sh -c "$1" > >(until [ -e "$2/go" ]; do sleep 0.1; done; cat; echo end) 2>&1'
    with subprocess.Popen(["bash", "-c", script, DDRUN, program_, str(tmp_path)], env=clean_env(), text=True,
                          stdout=subprocess.PIPE) as shell:
        try:
            code = shell.wait(timeout=LIMIT)
            assert code == (0 if "said" in program_ else 137)
        finally:
            (tmp_path / "go").touch()
        seen = shell.stdout.read()
    assert seen.endswith("end\n"), seen
    assert ("said" if "said" in program_ else "agent") in seen


def test_a_pipe_that_nobody_reads_is_no_loss_of_a_node():
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as free:
        where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}", "--insecure"]
    with Job(*where, "--node-rank=0", "--rejoin-timeout=1s", "true") as host:
        reader, full = os.pipe()
        os.set_blocking(full, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(full, b"x" * 4096)
        os.set_blocking(full, True)
        guest = subprocess.Popen([DDRUN, *where, "--node-rank=1", "--log-level=info", "true"], env=clean_env(), stderr=full)
        try:
            assert host.wait() == 0, host.err
            assert guest.wait(timeout=LIMIT) == 0
        finally:
            os.close(reader)  # EPIPE ends any process that still writes
            os.close(full)
            guest.kill()
            guest.wait()


def test_a_process_that_sigkill_does_not_end_does_not_keep_ddrun(clock):
    """This test traces the process, which then cannot be reaped: like one that waits in the kernel."""
    seize = 0x4206
    with Job("--nproc-per-node=1", "--shutdown-timeout=1s", "sleep", "1000", env=clean_env(**clock.env)) as job:
        until(lambda: [p for p in job.workers() if comm(p) == "sleep"], say="the worker")
        pid = job.workers()[0]
        if ctypes.CDLL(None, use_errno=True).ptrace(seize, pid, None, None) != 0:
            pytest.skip("this container forbids ptrace")
        try:
            os.kill(job.agents()[0], signal.SIGKILL)
            until(lambda: job.p.poll() is not None or clock.advance(1), say="that it is given up")
            assert job.wait() == 137
        finally:
            os.waitpid(pid, 0)
        assert some_line(job.err, "SIGKILL")


def test_a_port_in_use_leaves_no_key_in_the_home_directory():
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        job = run("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={taken.getsockname()[1]}",
                  "--munge-socket=/nonexistent", "--rdzv-id=keyfile", "true")
        assert job.p.returncode == 2 and "is in use by" in job.err


@pytest.mark.parametrize("victim", ["agent", "ddrund"])
def test_kill_9_leaves_no_key_in_the_home_directory(victim):
    args = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}",
            "--munge-socket=/nonexistent", "--rdzv-id=keyfile", "true"]
    with Job(*args) as job:
        keys = os.path.join(job.places["HOME"].name, ".ddrun")
        until(lambda: os.path.isdir(keys) and os.listdir(keys) and job.processes("ddrund"), say="the key and ddrund")
        os.kill({"agent": job.agents, "ddrund": lambda: job.processes("ddrund")}[victim]()[0], signal.SIGKILL)
        assert job.wait() != 0
        assert os.listdir(keys) == []
