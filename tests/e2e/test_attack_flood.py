"""Another user opens connections to ddrund as fast as possible, while ddrund has few descriptors: ddrund refuses no worker."""

import os
import re
import resource
import socket
import struct
import subprocess
import tempfile

import pytest

from cluster import until
from support import DDRUN, Job, clean_env, command_as, free_port, program

LIMIT = 240
PYTHON3 = "/usr/bin/python3"
USER, STRANGER = 20001, 20002
ROUNDS, CONNECTIONS = 3, 120
FEW_FILES = ["prlimit", "--nofile=256:256", "--"]

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")]


def args(go, connections=CONNECTIONS):
    return ["--nproc-per-node=4", f"--max-restarts={ROUNDS - 1}", program("many_stores.py"), str(connections), str(ROUNDS), go]


def assert_none_refused(out, workers):
    refused = [int(n) for n in re.findall(r"^refused (\d+)$", out, re.M)]
    assert refused == [0] * ROUNDS * workers


def no_sock_diag(home):
    """Return the variable that takes sock_diag away from ddrun: it then looks up owners in /proc/net/tcp."""
    library = os.path.join(home, "no_sock_diag.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, program("no_sock_diag.c"), "-ldl"], check=True)
    return {"LD_PRELOAD": library}


@pytest.mark.parametrize("idle, connections, variables", [  # two idle sockets each
    ("0", CONNECTIONS, lambda home: {}), ("3000", CONNECTIONS, lambda home: {}), ("1000", 8, no_sock_diag)])
def test_a_flood_from_another_user_of_the_node_refuses_no_worker(idle, connections, variables):
    with tempfile.TemporaryDirectory(prefix="e2e") as home:
        os.chown(home, USER, USER)
        env = clean_env(PYTHON_EXEC=PYTHON3, **variables(home))
        go = os.path.join(home, "go")
        with Job(*args(go, connections), home=home, tmp=home, cwd="/", env=env, before=command_as(USER, *FEW_FILES)) as job:
            seen = job.line("store")
            _, host, port = re.search("store .*", seen)[0].split()
            flood = subprocess.Popen(command_as(STRANGER, PYTHON3, program("flood.py"), host, port, idle), stdout=subprocess.PIPE, cwd="/", text=True)
            try:
                assert flood.stdout.readline() == "flooding\n"
                open(go, "w").close()
                assert job.wait(LIMIT) == 0, job.err
                assert flood.poll() is None, "the job ended only after the flood"
            finally:
                flood.kill()
                flood.communicate()
            assert_none_refused(seen + job.out, 4)


def test_a_flood_from_another_user_of_another_node_refuses_no_worker(cluster):
    """The attacker and half of the workers have the same address; only the node's agent can tell their connections apart."""
    go = os.path.join(cluster.directory("flood", "alice"), "go")
    env = {"PYTHON_EXEC": PYTHON3, "DDRUN_KEY": os.urandom(32).hex()}
    runs = [cluster.popen([*FEW_FILES, DDRUN, "--hosts=node[1-2]", "--rdzv-id=flood", *args(go)], node=name, user="alice", env=env)
            for name in ("node1", "node2")]
    floods = []
    try:
        _, host, port = until(lambda: runs[0].out if "\n" in runs[0].out else None, LIMIT, lambda: runs[0].err + runs[1].err).split()
        for node in ("node2", "node3"):
            floods.append(cluster.popen([PYTHON3, program("flood.py"), host, port], node=node, user="bob"))
            floods[-1].wait_for("flooding")
        cluster.run(["touch", go], user="alice")
        done = [run.wait(LIMIT) for run in runs]
        assert [d.rc for d in done] == [0, 0], done[0].err + done[1].err
        assert_none_refused(done[0].out + done[1].out, 8)
    finally:
        for run in (*runs, *floods):
            run.__exit__(None, None, None)


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024


def extension(kind, data):
    return struct.pack(">HH", kind, len(data)) + data


def client_hello(*more):
    """Return a ClientHello of TLS 1.3 with an empty key share, which makes the server request a second one."""
    extensions = b"".join((extension(43, b"\x02\x03\x04"), extension(10, b"\x00\x02\x00\x1d"), extension(13, b"\x00\x02\x04\x03"),
                           extension(51, b"\x00\x00"), extension(45, b"\x01\x01"), *more))
    body = b"\x03\x03" + os.urandom(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00" + struct.pack(">H", len(extensions)) + extensions
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def offer(identity):
    """Return a pre_shared_key extension with an invalid binder."""
    identities = struct.pack(">H", len(identity)) + identity + b"\x00" * 4
    return extension(41, struct.pack(">H", len(identities)) + identities + b"\x00\x21\x20" + b"\x00" * 32)


HALVES = {"incomplete": lambda job: client_hello()[:-1], "no-key": lambda job: client_hello(),
          "other-key": lambda job: client_hello(offer(b"another")), "no-proof": lambda job: client_hello(offer(job)),
          # OpenSSL would wait for the rest of these
          "fragment": lambda job: b"\x16\x03\x01\x00\x01" + client_hello()[5:6],
          "long-message": lambda job: b"\x16\x03\x01\x00\x06\x01\x00\x02\x00" + b"\x03\x03",
          "empty-record": lambda job: b"\x16\x03\x01\x00\x00",
          "other-message": lambda job: b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
          "warning-alert": lambda job: b"\x15\x03\x01\x00\x02\x01\x5a",
          "data-record": lambda job: b"\x17\x03\x03\x40\x00",
          "urgent-byte": lambda job: client_hello(offer(job)),
          "sslv2": lambda job: b"\x80\x80\x01\x03\x03\x00\x03\x00\x00\x00\x20"}


def half_handshake(port, half):
    """Send a hello, then the part of a handshake that a caller without the key can send."""
    s = socket.create_connection(("127.0.0.1", port), 30)
    job_id = f"explicit.{port}".encode()
    body = job_id + b"\0stranger\0"
    s.sendall(b"\xdddr\x01" + struct.pack(">H", len(body)) + body)
    head = s.recv(9, socket.MSG_WAITALL)
    assert head[:4] == b"\xdddr\x01" and head[6] == 0, head  # OK: go on with the key
    data = HALVES[half](job_id)
    if half == "urgent-byte":
        s.sendall(data[:20])
        s.send(data[20:21], socket.MSG_OOB)  # no part of the stream, but counted
        data = data[21:]
    s.sendall(data)
    return s


@pytest.mark.parametrize("half", HALVES)
def test_half_handshakes_cost_ddrund_little_memory(tmp_path, half):
    count, most_bytes = 1000, 6 << 20
    key, port = tmp_path / "key", free_port()
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    args = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}", f"--key-file={key}", "--rdzv-timeout=60s", "true"]
    try:
        with Job(*args) as job:
            until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 60, "ddrund listens")
            ddrund = until(lambda: job.processes("ddrund"), 60, "ddrund is there")[0]
            half_handshake(port, half).close()  # allocations that are made once
            small = resident(ddrund)
            callers = [half_handshake(port, half) for _ in range(count)]
            callers.append(half_handshake(port, half))  # ddrund has read what the other connections sent before it answers this one
            grown = resident(ddrund) - small
            for s in callers:
                s.close()
            assert grown < most_bytes, f"{grown / count:.0f} bytes each"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
