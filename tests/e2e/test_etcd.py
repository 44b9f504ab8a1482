"""Nodes that find each other through a real etcd (Debian: etcd-server) and have no other source of each other's addresses."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest

from support import (BUILD, DDRUN, HERE, LIMIT, Job, clean_env, free_port, json_lines, kill_marked, marked, program,
                     run, told, until, without_tips)
from webserver import WebServer, needs_helper

ETCD = shutil.which("etcd")

pytestmark = [pytest.mark.skipif(ETCD is None, reason="etcd is not installed (Debian: etcd-server)"), needs_helper]

# One write: workers of several nodes write to the same pipe, and Python does not buffer here.
SAY = """import json, os, sys
sys.stdout.write(json.dumps({k: os.environ.get(k) for k in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "DDRUN_ETCD_PASSWORD")}) + "\\n")
"""


class Etcd:
    """An etcd server of the test's own, on loopback."""

    ip = "127.0.0.1"

    def __init__(self, cert=None, *more):
        self.prepare(cert)
        self.more = more
        for _ in range(5):  # another test may take one of the ports first
            self.choose_ports()
            self.cluster = f"{self.name}={self.peer}"
            shutil.rmtree(self.dir.name + "/data", ignore_errors=True)
            if self.start():
                return
        raise AssertionError(self.log())

    def prepare(self, cert=None, name="default"):
        self.dir = tempfile.TemporaryDirectory(prefix="etcd")
        self.cert, self.token, self.name, self.more = cert, None, name, ()
        self.scheme = "https" if cert else "http"

    def choose_ports(self):
        self.host, self.peer = f"{self.ip}:{free_port()}", f"http://127.0.0.1:{free_port()}"

    def log(self):
        with open(self.dir.name + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def start(self):
        self.spawn()
        return self.is_up()

    def spawn(self):
        url, peer = f"{self.scheme}://{self.host}", self.peer
        args = [ETCD, "--name", self.name, "--data-dir", self.dir.name + "/data", "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, *self.more]
        if self.cert:
            args += ["--cert-file", self.cert + "/cert.pem", "--key-file", self.cert + "/key.pem"]
        with open(self.dir.name + "/log", "ab") as log:
            self.p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                      env=clean_env(ETCD_INITIAL_CLUSTER=self.cluster))

    def is_up(self):
        until(lambda: self.p.poll() is not None or self.answers(), say="etcd's first answer")
        return self.p.poll() is None

    def stop(self):
        self.p.kill()
        self.p.wait()

    def close(self):
        self.stop()
        self.dir.cleanup()

    def ask(self, path, limit=LIMIT, **body):
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(f"{self.scheme}://{self.host}/v3/{path}", json.dumps(body).encode(), headers)
        context = ssl.create_default_context(cafile=self.cert + "/ca.pem") if self.cert else None
        if self.cert and self.more:
            context.load_cert_chain(self.cert + "/both.pem")
        with urllib.request.urlopen(request, timeout=limit, context=context) as answer:
            return json.load(answer)

    def answers(self):
        try:
            return self.ask("kv/range", limit=5, key="YQ==")
        except urllib.error.HTTPError:
            return True  # it requires authentication
        except OSError:
            return False

    def enable_users(self):
        self.ask("auth/user/add", name="root", password="pass word")
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/enable")
        self.log_in()

    def log_in(self):
        self.token = None
        self.token = self.ask("auth/authenticate", name="root", password="pass word")["token"]

    def leads(self):
        """Return whether this member is the leader, or None if there is no leader."""
        status = self.ask("maintenance/status")
        return status["leader"] == status["header"]["member_id"] if "leader" in status else None

    def keys(self):
        """Return all keys with their values."""
        found = self.ask("kv/range", key="AA==", range_end="AA==").get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"]).decode() for kv in found}

    def reads(self):
        """Return etcd's own count of reads."""
        with urllib.request.urlopen(f"{self.scheme}://{self.host}/metrics", timeout=LIMIT) as answer:
            return float(re.search(r"^etcd_debugging_mvcc_range_total (\S+)$", answer.read().decode(), re.M).group(1))

    def put(self, key, value):
        self.ask("kv/put", key=base64.b64encode(key.encode()).decode(), value=base64.b64encode(value.encode()).decode())

    def delete(self, key):
        self.ask("kv/deleterange", key=base64.b64encode(key.encode()).decode())


class Etcd6(Etcd):
    """An etcd on IPv6."""

    ip = "[::1]"


class Member(Etcd):
    """One member of a cluster."""

    def __init__(self, name):  # started once all members have ports
        self.prepare(name=name)
        self.choose_ports()


class Cluster:
    """An etcd cluster of three members; `host` is that of the first leader."""

    def __init__(self):
        for _ in range(5):  # as above
            self.members = [Member(f"m{i}") for i in range(3)]
            for m in self.members:
                m.cluster = ",".join(f"{other.name}={other.peer}" for other in self.members)
                m.spawn()
            if all([m.is_up() for m in self.members]):
                until(lambda: None not in [m.leads() for m in self.members], say="a leader")
                self.members.sort(key=lambda m: not m.leads())
                self.host = ",".join(m.host for m in self.members)
                return
            self.close()
        raise AssertionError("no etcd of three members")

    def close(self):
        for m in self.members:
            m.close()


@pytest.fixture(scope="module")
def etcd():
    server = Etcd()
    yield server
    server.close()


def options(etcd, job, nnodes, *more):
    return [f"--rdzv-endpoint=etcd://{etcd.host}/jobs", f"--rdzv-id={job}", f"--nnodes={nnodes}", "--nproc-per-node=1", *more]


def host_of(etcd, job):
    value = etcd.keys().get(f"/jobs/{job}/host")
    return json.loads(value) if value else None


def assert_whole(said, n):
    assert sorted(int(s["RANK"]) for s in said) == list(range(n)), said
    assert {s["WORLD_SIZE"] for s in said} == {str(n)}


def test_two_groups_find_each_other_and_leave_nothing(etcd):
    """Not even for the time of the key's lease, unless the machine stalls as the job ends."""
    args = options(etcd, "two", 5, "--log-level=info", "--no-python", "python3", "-c", SAY)

    def leave_nothing():
        with Job("--simulate-nodes=2", *args) as a, Job("--simulate-nodes=3", *args) as b:
            assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
            said = json_lines(a.out) + json_lines(b.out)
            assert_whole(said, 5)
            assert len({s["MASTER_ADDR"] for s in said}) == 1  # a simulated node has one address only
            assert (a.err + b.err).count("etcd.two'") == 1
            a.assert_nothing_left()
            b.assert_nothing_left()
        return etcd.keys() == {}

    until(leave_nothing, say="a job that leaves nothing")


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no ::1 on this machine")
def test_an_etcd_is_reached_by_ipv6_and_never_through_a_proxy():
    etcd = Etcd6()
    try:
        args = options(etcd, "six", 2, "--no-python", "python3", "-c", SAY)
        env = clean_env(http_proxy="http://127.0.0.1:1", all_proxy="http://127.0.0.1:1")
        with Job(*args, env=env) as a, Job(*args, env=env) as b:
            assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
            assert_whole(json_lines(a.out) + json_lines(b.out), 2)
            assert told(a.err + b.err) == ""
    finally:
        etcd.close()


def test_groups_that_start_at_the_same_instant_never_make_two_hosts(etcd):
    for i in range(4):
        args = options(etcd, f"same{i}", 3, "--log-level=info", "--no-python", "python3", "-c", SAY)
        jobs = [Job(*args) for _ in range(3)]
        try:
            assert [job.wait() for job in jobs] == [0, 0, 0], "".join(job.err for job in jobs)
            assert_whole([s for job in jobs for s in json_lines(job.out)], 3)
            assert sum(job.err.count("etcd.") for job in jobs) == 1
        finally:
            for job in jobs:
                job.__exit__()
    until(lambda: etcd.keys() == {}, say="the end of the key")


def another(entry, first):
    return entry if entry and entry["id"] != first["id"] else None


class Waiting(Job):
    """A job whose workers report in each round and end once `go` exists."""

    def __init__(self, etcd, job, go, *more, last_call="0s"):
        self.seen = ""
        super().__init__(*options(etcd, job, "2:3", "--grow=now", f"--last-call={last_call}", "--shutdown-timeout=10s", *more),
                         program("rounds.py"), "2,3", str(go))

    def said(self, n):
        while len(json_lines(self.seen)) < n:
            self.seen += self.line("\n")
        return json_lines(self.seen)

    def hosts(self):
        return self.processes("ddrund") != []


def test_the_successor_is_found_where_the_host_was_though_etcd_was_away(tmp_path):
    etcd, go = Etcd(), tmp_path / "go"
    try:
        with Waiting(etcd, "next", go, last_call="60s") as a:
            first = until(lambda: host_of(etcd, "next"), say="the host's name in etcd")
            with Waiting(etcd, "next", go, "--simulate-nodes=2") as b:
                assert_whole(a.said(1) + b.said(2), 3)
                assert a.hosts() and not b.hosts()
                assert until(lambda: host_of(etcd, "next")["started"])
                until(lambda: b.processes("ddrun-web") == [], say="the end of the helpers: an agent with a link needs none")
                etcd.stop()
                for pid in marked(a.mark):  # stopped first: no process may observe the end of another
                    os.kill(pid, signal.SIGSTOP)
                kill_marked(a.mark)
                assert_whole(b.said(4)[2:], 2)
                assert etcd.start(), etcd.log()
                second = until(lambda: another(host_of(etcd, "next"), first), say="the successor's name")
                assert second["epoch"] > first["epoch"] and second["secret"] == first["secret"]
                with Waiting(etcd, "next", go) as c:
                    assert_whole(b.said(6)[4:] + c.said(1), 3)
                    go.touch()
                    assert [b.wait(), c.wait()] == [0, 0], b.err + c.err
                    assert "takes over" in b.err
                    b.assert_nothing_left()
                    c.assert_nothing_left()
        until(lambda: etcd.keys() == {}, say="the end of the key")
    finally:
        etcd.close()


def test_a_running_job_takes_its_key_back_and_who_came_between_joins_it(etcd, tmp_path):
    go = tmp_path / "go"
    with Waiting(etcd, "back", go, "--simulate-nodes=2") as a:
        assert_whole(a.said(2), 2)
        until(lambda: (host_of(etcd, "back") or {}).get("started"), say="the host's name in etcd")
        etcd.delete("/jobs/back/host")
        with Waiting(etcd, "back", go) as b:
            assert_whole(a.said(4)[2:] + b.said(1), 3)
            assert until(lambda: (host_of(etcd, "back") or {}).get("started"))
            go.touch()
            assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
            a.assert_nothing_left()
            b.assert_nothing_left()
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_a_dead_hosts_name_goes_with_its_lease_and_another_node_takes_its_place(etcd):
    args = options(etcd, "dead", 2, "--no-python", "python3", "-c", SAY)
    with Job(*args) as a:
        first = until(lambda: host_of(etcd, "dead"), say="the host's name in etcd")
        until(lambda: a.processes("ddrund"), say="the daemon")  # before, agents() may find the process that becomes the daemon
        assert len(a.processes("ddrun-web")) == 1
        killed = time.monotonic()
        os.kill(a.agents()[0], signal.SIGKILL)
        until(lambda: not marked(a.mark), say="nothing left of the dead host")
        a.wait()
        a.assert_nothing_left()
        found, passed = host_of(etcd, "dead"), time.monotonic() - killed
        assert found == first or passed > 3, "nobody has taken it away: the lease of 10 s does"
    with Job(*args) as b, Job(*args) as c:
        assert [b.wait(), c.wait()] == [0, 0], b.err + c.err
        assert_whole(json_lines(b.out) + json_lines(c.out), 2)
    until(lambda: etcd.keys() == {}, say="the end of the key")


def errors(job, wanted):
    """Read the job's stderr until it contains `wanted`; return the text."""
    said = ""
    while wanted not in said:
        chunk = os.read(job.p.stderr.fileno(), 65536).decode()
        assert chunk, said
        said += chunk
    return said


def test_a_job_runs_on_while_etcd_is_away_and_says_so_once(tmp_path):
    etcd, go = Etcd(), tmp_path / "go"
    try:
        with Waiting(etcd, "away", go, "--simulate-nodes=2") as a:
            assert_whole(a.said(2), 2)
            etcd.stop()
            said = errors(a, "the job continues")
            with Odd(no_leader, int(etcd.host.split(":")[1])) as odd:
                until(lambda: len(odd.asked) > 1, say="more tries, in vain")
            go.touch()
            assert a.wait() == 0
            assert (said + a.err).count("the job continues") == 1 and len(without_tips(told(said + a.err))) == 1, said + a.err
            a.assert_nothing_left()
    finally:
        etcd.close()


def test_members_of_an_etcd_die_and_the_job_goes_on(tmp_path):
    etcd, go = Cluster(), tmp_path / "go"
    leader, second, third = etcd.members  # all nodes begin with the leader
    try:
        with Waiting(etcd, "three", go) as a, Waiting(etcd, "three", go) as b:
            assert_whole(a.said(1) + b.said(1), 2)
            host, guest = (a, b) if a.hosts() else (b, a)
            leader.stop()
            with Waiting(etcd, "three", go) as c:  # it finds the job through the others
                assert_whole(a.said(2)[1:] + b.said(2)[1:] + c.said(1), 3)
                second.stop()
                said = errors(host, "the job continues")
                while said.count("the job continues") == said.count("etcd accepts requests again"):  # of the time without a leader
                    said += errors(host, "the job continues")
                assert second.start(), second.log()
                while said.count("the job continues") > said.count("etcd accepts requests again"):
                    said += errors(host, "etcd accepts requests again")
                go.touch()
                assert [a.wait(), b.wait(), c.wait()] == [0, 0, 0], a.err + b.err + c.err
                assert told(guest.err + c.err) == ""
                for job in (a, b, c):
                    job.assert_nothing_left()
        until(lambda: third.leads() is not None and third.keys() == {}, say="the end of the host's name")
    finally:
        etcd.close()


def test_the_script_for_several_allocations_makes_one_job_of_them(etcd, tmp_path):
    """Each allocation has one node; a stand-in replaces srun."""
    (tmp_path / "srun").write_text("#!/bin/sh\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n", encoding="ascii")
    (tmp_path / "srun").chmod(0o755)
    script = os.path.join(HERE, "..", "..", "contrib", "jobs", "slurm-etcd.sbatch")
    env = clean_env(PATH=f"{tmp_path}:{BUILD}:{os.environ['PATH']}", ETCD=f"etcd://{etcd.host}/jobs", SLURM_JOB_NAME="run7")
    args = ["bash", script, "--last-call=0s", "--nproc-per-node=1", "--no-python", "python3", "-c", SAY]
    jobs = [subprocess.Popen(args, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [job.communicate(timeout=LIMIT)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    assert_whole(json_lines("".join(said)), 2)
    until(lambda: etcd.keys() == {}, say="the end of the key")


# ---- authentication ------------------------------------------------------------------------------------


def make_certificates(folder):
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=folder)

    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n", encoding="ascii")
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    openssl(*new, "/CN=test-ca", "-x509", "-days", "2", "-keyout", "ca-key.pem", "-out", "ca.pem")
    openssl(*new, "/CN=other-ca", "-x509", "-days", "2", "-keyout", "other-key.pem", "-out", "other.pem")
    openssl(*new, "/CN=etcd", "-keyout", "key.pem", "-out", "req.pem")
    openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile",
            "ext", "-out", "cert.pem")
    openssl("rsa", "-aes128", "-passout", "pass:abcd", "-in", "key.pem", "-out", "locked.pem")
    (folder / "both.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text(), encoding="ascii")
    return str(folder)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """An etcd with TLS and users."""
    server = Etcd(cert=make_certificates(tmp_path_factory.mktemp("etcd-tls")))
    server.enable_users()
    yield server
    server.close()


def guarded_args(etcd, job, user="root@", query="cacert=ca.pem"):
    return [f"--rdzv-endpoint=etcds://{user}{etcd.host}/jobs?{query.replace('=', '=' + etcd.cert + '/')}", f"--rdzv-id={job}", "--nnodes=2",
            "--nproc-per-node=1", "--no-python", "python3", "-c", SAY]


def test_tls_and_a_password_that_no_worker_sees(guarded, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("pass word\n", encoding="ascii")
    args = guarded_args(guarded, "tls")
    with Job(*args, env=clean_env(DDRUN_ETCD_PASSWORD="pass word")) as a, \
            Job(args[0] + f"&password-file={secret}", *args[1:]) as b:
        assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
        said = json_lines(a.out) + json_lines(b.out)
        assert_whole(said, 2)
        assert {s["DDRUN_ETCD_PASSWORD"] for s in said} == {None}
        assert told(a.err + b.err) == ""
    until(lambda: guarded.keys() == {}, say="the end of the key")


@pytest.mark.parametrize("user, query, password, says", [
    ("root@", "cacert=ca.pem", "wrong", "invalid user ID or password"),
    ("nobody@", "cacert=ca.pem", "pass word", "invalid user ID or password"),
    ("", "cacert=ca.pem", "", "user name"),
    ("root@", "cacert=other.pem", "pass word", "certificate"),
    ("root@", "cacert=absent.pem", "pass word", "absent.pem"),
    ("root@", "cacert=ca.pem", "", "password"),
])
def test_who_may_not_ask_gets_one_sentence(guarded, user, query, password, says):
    job = run(*guarded_args(guarded, "no", user, query), env=clean_env(DDRUN_ETCD_PASSWORD=password))
    assert job.p.returncode == 2
    assert says in job.err and len(without_tips(job.err)) == 1, job.err
    assert job.out == "" and "pass word" not in job.err


def test_a_token_that_a_change_of_users_makes_old_is_asked_for_anew(tmp_path):
    """A jwt token names the revision of all users, and is invalid for any other revision."""
    go = tmp_path / "go"
    for args in (["genrsa", "-out", "jwt.pem", "2048"], ["rsa", "-in", "jwt.pem", "-pubout", "-out", "jwt.pub"]):
        subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=tmp_path)
    etcd = Etcd(None, "--auth-token", f"jwt,pub-key={tmp_path}/jwt.pub,priv-key={tmp_path}/jwt.pem,sign-method=RS256,ttl=10m")
    try:
        etcd.enable_users()
        with Waiting(etcd, "jwt", go, "--simulate-nodes=2", f"--rdzv-endpoint=etcd://root:pass%20word@{etcd.host}/jobs") as a:
            assert_whole(a.said(2), 2)
            until(lambda: (host_of(etcd, "jwt") or {}).get("started"), say="the host's name in etcd")
            etcd.ask("auth/role/add", name="other")
            etcd.log_in()
            etcd.delete("/jobs/jwt/host")
            until(lambda: host_of(etcd, "jwt"), say="the name that it puts back")
            go.touch()
            assert a.wait() == 0 and told(a.err) == ""
        until(lambda: etcd.keys() == {}, say="the end of the key")
    finally:
        etcd.close()


@pytest.fixture(scope="module")
def mutual(tmp_path_factory):
    """An etcd with TLS that requires client certificates."""
    cert = make_certificates(tmp_path_factory.mktemp("etcd-mtls"))
    server = Etcd(cert, "--client-cert-auth", "--trusted-ca-file", cert + "/ca.pem")
    yield server
    server.close()


def by_torchrun(etcd, backend, conf, job="mutual"):
    """Return the options as torchrun names them; @FILE in conf is a file of etcd's certificates."""
    conf = conf.replace("@", etcd.cert + "/")
    return [f"--rdzv-backend={backend}", f"--rdzv-endpoint={etcd.host}", f"--rdzv-conf={conf}", f"--rdzv-id={job}", "--nnodes=3",
            "--rdzv-timeout=60s", "--nproc-per-node=1", "--no-python", "python3", "-c", SAY]


def test_nodes_with_certificates_meet_by_url_and_as_under_torchrun(mutual):
    url = f"etcds://{mutual.host}/torch%20elastic?cacert=@ca.pem&cert=@cert.pem&key=@key.pem".replace("@", mutual.cert + "/")
    v1 = by_torchrun(mutual, "etcd", "protocol=https,cacert=@ca.pem,cert=@both.pem,etcd_prefix=torch elastic")
    v2 = by_torchrun(mutual, "etcd-v2", "protocol=HTTPS,ca_cert=@ca.pem,ssl_cert=@cert.pem,ssl_cert_key=@key.pem,etcd_prefix=/torch elastic/")
    with Job(f"--rdzv-endpoint={url}", *v1[3:]) as a, Job(*v1) as b, Job(*v2) as c:
        assert [a.wait(), b.wait(), c.wait()] == [0, 0, 0], a.err + b.err + c.err
        assert_whole(json_lines(a.out) + json_lines(b.out) + json_lines(c.out), 3)
        assert told(a.err + b.err + c.err) == ""
    until(lambda: mutual.keys() == {}, say="the end of the key")


@pytest.mark.parametrize("conf, says", [
    ("protocol=https,cacert=@ca.pem", "cert=FILE"),
    ("protocol=https,cacert=@ca.pem,cert=@other.pem,key=@other-key.pem", "certificate"),
    ("protocol=https,cacert=@ca.pem,cert=@cert.pem,key=@ca-key.pem", "unable to set private key file"),
    ("protocol=https,cacert=@ca.pem,cert=@cert.pem,key=@locked.pem", "unable to set private key file"),
    ("protocol=https,cacert=@ca.pem,cert=@cert.pem,key=@absent.pem", "absent.pem"),
    ("protocol=https,cacert=@ca.pem,cert=@absent.pem", "absent.pem"),
    ("protocol=https,cacert=@", "Is a directory"),
    ("protocol=https,cacert=@ca.pem,key=@key.pem", "cert="),
    ("cacert=@ca.pem", "needs TLS"),
    ("protocol=ftp", "protocol=ftp"),
    ("etcd_prefix=" + 500 * "a", "512"),
])
def test_what_is_wrong_with_certificates_is_one_sentence(mutual, conf, says):
    job = run(*by_torchrun(mutual, "etcd", conf, "no"))
    assert job.p.returncode == 2
    said = [line for line in job.err.splitlines() if "waiting for " not in line and not line.startswith("  tip: ")]  # a refusal may be cut off, under load
    assert len(said) == 1 and says in said[0], job.err


def test_an_etcd_without_tls_is_not_asked_where_https_is_wanted(mutual):
    job = run(f"--rdzv-endpoint=etcd://{mutual.host}/x", *by_torchrun(mutual, "etcd", "protocol=https")[2:])
    assert job.p.returncode == 2 and "etcds://" in job.err


# ---- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("args, code, says", [
    (["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=5s"], 1, "127.0.0.1:1"),
    (["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--nnodes=2"], 2, "--rdzv-id=ID"),
    (["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a"], 2, "--nnodes=N"),
    (["--rdzv-endpoint=etcd://127.0.0.1:x/x", "--rdzv-id=a", "--nnodes=2"], 2, "'127.0.0.1:x'"),
    (["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2", "--hosts=a,b"], 2, "--hosts"),
    (["--rdzv-backend=etcd-v2", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=5s"], 1, "127.0.0.1:1"),
    (["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2", "--doctor"], 2, "--doctor"),
])
def test_what_cannot_be_is_one_sentence(args, code, says):
    job = run(*args, "true")
    assert job.p.returncode == code
    assert says in job.err and len(without_tips(told(job.err))) == 1, job.err


@pytest.mark.parametrize("user, query, password, says", [
    ("u", "", "\udcff", "'u'"),
    ("u", "", "a" * 100000, "4096 bytes"),
    ("\udcff", "", "p", "user"),
    ("%ff", "", "p", "user"),
    ("u:%c3", "", "", "password"),
    ("u", "?password-file=FILE", "", "'u'"),
])
def test_who_asks_etcd_is_told_what_his_name_and_password_must_be(tmp_path, user, query, password, says):
    (tmp_path / "password").write_bytes(b"\xff\n")
    query = query.replace("FILE", str(tmp_path / "password"))
    job = run(f"--rdzv-endpoint=etcd://{user}@127.0.0.1:1/x{query}", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=60s", "true",
              env=clean_env(DDRUN_ETCD_PASSWORD=password))
    assert job.p.returncode == 2
    assert says in job.err and len(without_tips(job.err)) == 1, job.err


def test_nodes_of_a_job_that_would_stay_idle_are_told_of():
    """A script of two nodes, on both of which ddrun would start itself without an etcd."""
    env = clean_env(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=f"{socket.gethostname()},other", SLURM_NNODES="2", SLURM_NTASKS="2")
    args = ["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=100ms", "true"]
    told = ["2 nodes" in run(*args, env=e).err
            for e in (env, env | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, clean_env())]
    assert told == [True, False, False]


class Odd(WebServer):
    """A server that is not etcd: answer(path) returns the status and an object or text, and may block."""

    def __init__(self, answer, port=0):
        self.asked, self.answer = [], answer
        super().__init__(port)

    def reply(self, path, headers, body):
        self.asked.append(path)
        status, o = self.answer(path)
        return status, o if isinstance(o, str) else json.dumps(o)


def no_leader(path):
    return 503, {"error": "etcdserver: no leader", "code": 14}


NO_ETCD = [
    (200, "x" * 200000),
    (200, "[" * 60000),
    (200, '{"kvs":[{"mod_revision":"1","value":"' + "QUJD" * 10000 + '"}]}'),
    (200, '{"kvs": 7, "ID": []}'),
    (400, '{"error": "\\u001b[31m' + "e" * 1000 + '", "code": 14}'),
    (500, "\x1b[31m\x07\n"),
    (307, ""),
]


def test_who_answers_as_no_etcd_does_is_not_believed_and_shown_as_text():
    with contextlib.ExitStack() as stack:
        odds = [stack.enter_context(Odd(lambda path, answer=answer: answer)) for answer in NO_ETCD]
        jobs = [stack.enter_context(Job(f"--rdzv-endpoint=etcd://{odd.host}/x", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=10s", "true"))
                for odd in odds]
        assert [job.wait() for job in jobs] == [1] * len(jobs)
        for odd, job in zip(odds, jobs):
            last = job.err.splitlines()[-1]
            assert 0 < len(odd.asked) < 60 and "timed out" in last and f"http://{odd.host}" in last and len(last) < 600, job.err
            assert job.err.replace("\n", "").isprintable()


def test_a_timeout_during_a_query_names_the_error_of_the_query_before():
    """The key does not exist, and each query for it succeeds. The first request for a lease is refused, the second gets no reply."""
    ended = threading.Event()
    leases = []

    def answer(path):
        if path.endswith("range"):
            return 200, {}
        leases.append(path)
        if len(leases) > 1:
            ended.wait(LIMIT)
        return 500, "no lease today"

    with Odd(answer) as odd:
        job = run(f"--rdzv-endpoint=etcd://{odd.host}/x", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=4s", "true")
        ended.set()
        assert job.p.returncode == 1, job.err
        last = job.err.splitlines()[-1]
        assert "timed out" in last and odd.host in last and "no lease today" in last, job.err


def test_a_token_that_is_never_right_is_not_asked_for_without_end():
    def answer(path):
        return (200, {"token": "abc"}) if path.endswith("authenticate") else (401, {"error": "etcdserver: invalid auth token", "code": 16})

    with Odd(answer) as odd:
        job = run(f"--rdzv-endpoint=etcd://u@{odd.host}/x", "--rdzv-id=a", "--nnodes=2", "--rdzv-timeout=8s", "true",
                  env=clean_env(DDRUN_ETCD_PASSWORD="p"))
        assert job.p.returncode == 1 and "invalid auth token" in job.err
        assert odd.asked.count("/v3/auth/authenticate") > 1 and len(odd.asked) < 60, len(odd.asked)


def test_a_member_without_a_leader_is_not_asked_again_and_again(etcd):
    with Odd(no_leader) as odd:
        args = options(etcd, "noleader", 2, "--no-python", "python3", "-c", SAY)
        args[0] = f"--rdzv-endpoint=etcd://{odd.host},{etcd.host}/jobs"
        with Job(*args) as a, Job(*args) as b:
            assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
            assert_whole(json_lines(a.out) + json_lines(b.out), 2)
            assert odd.asked and told(a.err + b.err) == ""
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_an_etcd_that_hangs_does_not_hold_who_wants_to_end():
    stop = threading.Event()

    def answer(path):
        stop.wait(60)
        return 500, {}

    with Odd(answer) as odd:
        try:
            with Job(f"--rdzv-endpoint=etcd://{odd.host}/x", "--rdzv-id=a", "--nnodes=2", "true") as job:
                until(lambda: odd.asked, say="the first question")
                os.kill(job.agents()[0], signal.SIGINT)
                assert job.wait() == 130, job.err
                job.assert_nothing_left()
        finally:
            stop.set()


def test_a_host_that_gave_way_to_nobody_is_the_host_again_with_one_daemon(etcd):
    args = options(etcd, "again", 2, "--no-python", "python3", "-c", SAY)
    with Job(*args) as a:
        mine = until(lambda: host_of(etcd, "again"), say="the host's name in etcd")
        daemon = until(lambda: a.processes("ddrund"), say="the daemon")[0]
        os.kill(daemon, signal.SIGSTOP)  # it does not end by itself
        etcd.put("/jobs/again/host", json.dumps({**mine, "id": "0" * 16, "port": free_port(), "addrs": ["127.0.0.1"]}))
        errors(a, "joining")
        etcd.delete("/jobs/again/host")
        until(lambda: host_of(etcd, "again"), say="the host's name once more")
        until(lambda: len(a.processes("ddrund")) == 1 and daemon not in a.processes("ddrund"), say="the new daemon alone")
        with Job(*args) as b:
            assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
            assert_whole(json_lines(a.out) + json_lines(b.out), 2)
            b.assert_nothing_left()
        a.assert_nothing_left()
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_a_host_whose_daemon_ends_does_not_look_for_itself(etcd):
    """ddrund ends at once: it refuses the value of the variable."""
    done = subprocess.run([DDRUN, *options(etcd, "own", 2, "--rdzv-timeout=20s", "true")], env=clean_env(DDRUND_MAX_MEMORY="x"),
                          capture_output=True, text=True, timeout=LIMIT)
    assert "DDRUND_MAX_MEMORY" in done.stderr, done.stderr
    assert done.returncode == 1 and "lost" in done.stderr and "retry" not in done.stderr, done.stderr
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_a_strange_word_in_the_key_of_a_running_job_is_told_once(etcd, tmp_path):
    go = tmp_path / "go"
    with Waiting(etcd, "word", go, "--simulate-nodes=2") as a:
        assert_whole(a.said(2), 2)
        until(lambda: (host_of(etcd, "word") or {}).get("started"), say="the host's name in etcd")
        etcd.put("/jobs/word/host", "hello")
        said, before = errors(a, "the job continues"), etcd.reads()
        until(lambda: etcd.reads() > before + 1, say="that it is read again, and again")
        etcd.delete("/jobs/word/host")
        said += errors(a, "etcd accepts requests again")
        until(lambda: host_of(etcd, "word"), say="the name that it puts back")
        go.touch()
        assert a.wait() == 0
        assert len(told(said + a.err).splitlines()) == 2, said + a.err
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_an_etcd_that_is_full_is_told_of_once(tmp_path):
    """etcd serves reads and refuses writes until space is freed."""
    etcd, go = Etcd(), tmp_path / "go"
    try:
        with Waiting(etcd, "full", go, "--simulate-nodes=2") as a:
            assert_whole(a.said(2), 2)
            until(lambda: (host_of(etcd, "full") or {}).get("started"), say="the host's name in etcd")
            etcd.ask("maintenance/alarm", action="ACTIVATE", alarm="NOSPACE")
            etcd.delete("/jobs/full/host")
            said, before = errors(a, "the job continues"), etcd.reads()
            until(lambda: etcd.reads() > before + 2, say="that it is read again, and again")
            etcd.ask("maintenance/alarm", action="DEACTIVATE", alarm="NOSPACE")
            until(lambda: host_of(etcd, "full"), say="the name that it puts back")
            said += errors(a, "etcd accepts requests again")
            go.touch()
            assert a.wait() == 0
            assert len(told(said + a.err).splitlines()) == 2, said + a.err
    finally:
        etcd.close()


def test_the_helper_is_started_again(etcd, tmp_path):
    go = tmp_path / "go"
    with Waiting(etcd, "helper", go, "--simulate-nodes=2") as a:
        assert_whole(a.said(2), 2)
        first = until(lambda: a.processes("ddrun-web"), say="the helper")
        os.kill(first[0], signal.SIGKILL)
        until(lambda: [p for p in a.processes("ddrun-web") if p not in first], say="another helper")
        etcd.delete("/jobs/helper/host")
        until(lambda: host_of(etcd, "helper"), say="the name that it puts back")
        go.touch()
        assert a.wait() == 0, a.err
        a.assert_nothing_left()
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_a_helper_that_is_killed_while_its_node_seeks_the_host_costs_nothing(etcd):
    stop = threading.Event()
    with Odd(lambda path: stop.wait(60) and no_leader(path)) as odd:
        args = options(etcd, "seek", 2, "--no-python", "python3", "-c", SAY)
        args[0] = f"--rdzv-endpoint=etcd://{odd.host},{etcd.host}/jobs"
        try:
            with Job(*args) as a:
                until(lambda: odd.asked, say="the first question")
                os.kill(a.processes("ddrun-web")[0], signal.SIGKILL)
                until(lambda: len(odd.asked) > 1, say="the same of another helper")
                stop.set()
                with Job(*args) as b:
                    assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
                    assert_whole(json_lines(a.out) + json_lines(b.out), 2)
                    assert told(a.err + b.err) == ""
        finally:
            stop.set()
    until(lambda: etcd.keys() == {}, say="the end of the key")


def test_what_is_no_word_of_a_host_is_refused(etcd):
    etcd.put("/jobs/strange/host", "hello")
    job = run(*options(etcd, "strange", 2), "true")
    etcd.delete("/jobs/strange/host")
    assert job.p.returncode == 2 and "/jobs/strange/host" in job.err


def test_without_the_helper_the_option_says_what_is_missing(tmp_path):
    for name in ("ddrun", "ddrund"):
        shutil.copy(os.path.join(BUILD, name), tmp_path)
    done = subprocess.run([tmp_path / "ddrun", "--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2", "true"], env=clean_env(),
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and "libcurl" in done.stderr, done.stderr


def test_the_password_in_a_url_is_in_no_log(etcd):
    args = [f"--rdzv-endpoint=etcd://u:geheim@{etcd.host}/jobs", "--rdzv-id=url", "--nnodes=2", "--log-level=debug", "--nproc-per-node=1", "true"]
    with Job(*args) as a, Job(*args) as b:  # this etcd has no users: it ignores the password
        assert [a.wait(), b.wait()] == [0, 0], a.err + b.err
        assert "geheim" not in a.err + b.err


@pytest.mark.parametrize("program_, endpoint", [("ddctl", "etcd://u:geheim@127.0.0.1:1/x"), ("ddrun", "http://u:geheim@127.0.0.1:1/x"),
                                                ("ddrun", "u:geheim@127.0.0.1:0")])
def test_an_error_about_a_url_of_the_environment_does_not_show_its_password(program_, endpoint):
    """Others may read the log of the job, but neither the environment of ddrun nor the file that sets it."""
    words = ["doctor"] if program_ == "ddctl" else ["--nnodes=2", "true"]
    option = [f"--rdzv-endpoint={endpoint}"] if program_ == "ddctl" else []
    done = subprocess.run([f"{BUILD}/{program_}", *words[:1], *option, *words[1:]], env=clean_env(DDRUN_RDZV_ENDPOINT=endpoint),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 2 and "--rdzv-endpoint: " in done.stderr and "geheim" not in done.stderr, done.stderr


def test_the_password_in_a_url_of_the_environment_reaches_no_worker():
    done = run("--rdzv-id=a", "--nnodes=1", "--nproc-per-node=1", "--no-python", "sh", "-c", "env | grep -c geheim; exit 0",
               env=clean_env(DDRUN_RDZV_ENDPOINT="etcd://u:geheim@127.0.0.1:1/x"))
    assert done.p.returncode == 0 and done.out == "0\n", done.err


def test_only_who_needs_the_helper_has_it():
    linked = subprocess.run(["ldd", DDRUN], capture_output=True, text=True, check=True).stdout
    assert "libcurl" not in linked
    with Job("--nproc-per-node=1", "--no-python", "sh", "-c", "echo up; sleep 60") as job:
        job.line("up")
        assert job.processes("ddrun-web") == []
