"""Another user of the nodes attacks the job's key: computes PBS's cookie, and reads what starters expose."""

import ctypes
import os
import re
import time

import pytest

from support import DDRUN, KEY, some_line
from test_other_ways import nodes  # noqa: F401
from test_slurm import LIMIT, slurm, until  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

VICTIM, ATTACKER = "alice", "bob"
SECRET = "a value that only its user may see"


class Mom:
    """The cookies of PBS's mom, which calls srand(time()) when it starts a connection, and draws four numbers per job."""

    def __init__(self, seed, other_draws=7):
        self.libc = ctypes.CDLL(None)
        self.libc.random.restype = ctypes.c_long
        self.libc.srandom(ctypes.c_uint(seed))
        for _ in range(other_draws):
            self.libc.random()

    def cookie(self):
        return "".join(f"{self.libc.random():08X}" for _ in range(4))


def cookies_after(own, now, window=300, most=64):
    """Return the cookies that other jobs of this node may have, computed from the cookie of one job."""
    libc = ctypes.CDLL(None)
    libc.random.restype = ctypes.c_long
    first = int(own[:8], 16)
    for seed in range(now, now - window, -1):
        libc.srandom(ctypes.c_uint(seed))
        drawn = [libc.random() for _ in range(most)]
        if first in drawn[:-8]:
            at = drawn.index(first)
            if own == "".join(f"{n:08X}" for n in drawn[at:at + 4]):
                return ["".join(f"{n:08X}" for n in drawn[k:k + 4]) for k in range(at % 4, most - 4, 4)]
    return []


def pbs_job(place, cookie, index):
    """Return the variables of a PBS task; all but the cookie are public."""
    path = os.path.join(place, "nodefile")
    if not os.path.exists(path):  # a task that runs already may be reading it
        with open(path, "w", encoding="ascii") as f:
            f.write("node1\nnode2\n")
        os.chmod(path, 0o644)
    return {"PBS_JOBID": "12.pbshead", "PBS_NODEFILE": path, "PBS_NODENUM": str(index), "PBS_TASKNUM": f"2000000{index}",
            "PBS_JOBCOOKIE": cookie, "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_MOMPORT": "15003", "NCPUS": "1", "ENVIRONMENT": "BATCH"}


@pytest.fixture
def users(nodes):  # noqa: F811
    """Two users with home directories that all nodes share."""
    class Users:
        cluster = nodes
        home = {user: nodes.directory("home", user) for user in (VICTIM, ATTACKER)}
        place = nodes.directory("public")

        def start(self, user, node, *argv, **env):
            return nodes.popen(list(argv), node=node, user=user, cwd=self.home[user],
                               env={"HOME": self.home[user], "OMP_NUM_THREADS": "1", **env})

    os.chmod(Users.place, 0o755)
    if nodes.run([DDRUN, "--version"], node="node1", user=ATTACKER, cwd="/").rc != 0:
        pytest.skip("other users cannot run this ddrun")
    yield Users()
    for name in ("node1", "node2"):
        nodes.munge(name, True)


@pytest.fixture
def cookies():
    """Return the victim's cookie, and the attacker's computation of it from the cookie of an own, earlier job on the node."""
    mom = Mom(int(time.time()) - 40)
    own, _, victims = mom.cookie(), mom.cookie(), mom.cookie()
    guessed = cookies_after(own, int(time.time()))
    assert victims in guessed, "the attacker computes the cookie"
    return victims, [c for c in guessed if c == victims][0]


@pytest.mark.parametrize("source", ["MUNGE", "home"])
def test_who_computes_the_cookie_of_a_pbs_job_does_not_join_it(users, cookies, source):
    cookie, guessed = cookies
    for name in ("node1", "node2"):
        users.cluster.munge(name, source == "MUNGE")
    command = [DDRUN, "--nproc-per-node=1", "--log-level=info", "sh", "-c", "echo rank $RANK of $(id -un)"]
    first = users.start(VICTIM, "node1", *command, **pbs_job(users.place, cookie, 0))
    with first:
        until(lambda: "key source" in first.err, LIMIT, lambda: first.err)
        assert cookie not in first.err and cookie.lower() not in first.err
        for extra in ([], ["--key-source=pbs-cookie"]):
            with users.start(ATTACKER, "node2", DDRUN, "--rdzv-timeout=15s", *extra, *command[1:],
                             **pbs_job(users.place, guessed, 1)) as attack:
                refused = attack.wait(LIMIT)
            assert refused.rc != 0 and "rank" not in refused.out, refused
        assert first.rc is None, first.err
        with users.start(VICTIM, "node2", *command, **pbs_job(users.place, cookie, 1)) as second:
            assert second.wait(LIMIT).rc == 0, second.err
            assert second.out == "rank 1 of alice\n"
        assert first.wait(LIMIT).rc == 0, first.err
        assert first.out == "rank 0 of alice\n"


@pytest.mark.parametrize("source", ["MUNGE", "home"])
def test_who_computes_the_cookie_does_not_fetch_the_launch_package(users, cookies, source):
    """The ticket is in the starter's argument list, which every user can read."""
    cookie, guessed = cookies
    users.cluster.munge("node1", source == "MUNGE")
    go, out = f"{users.place}/go", f"{users.home[VICTIM]}/out"
    starter = f"{users.place}/pbs_tmrsh"
    task = " ".join(f"{k}={v}" for k, v in pbs_job(users.place, cookie, 1).items())
    with open(starter, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nshift\nwhile [ ! -e {go} ]; do sleep 0.05; done\n"
                f"exec env -i HOME=$HOME PATH=/bin:/usr/bin {task} \"$@\" </dev/null >>{out} 2>&1\n")
    os.chmod(starter, 0o755)
    script = {**pbs_job(users.place, cookie, 0), "PBS_TASKNUM": "1"}
    with users.start(VICTIM, "node1", DDRUN, "--launcher=pbs_tmrsh", f"--launch-command={starter}", "--nproc-per-node=1",
                     "sh", "-c", "echo rank $RANK of $(id -un) $ONLY_MINE", ONLY_MINE=SECRET, **script) as job:
        ticket = until(lambda: seen_by(users, "node1", "--launched="), LIMIT, lambda: job.err)
        for env in (pbs_job(users.place, guessed, 1), {**pbs_job(users.place, guessed, 1), "DDRUN_KEY": KEY}):
            with users.start(ATTACKER, "node1", "timeout", "4", DDRUN, ticket, **env) as attack:
                refused = attack.wait(LIMIT)
            assert refused.rc != 0 and SECRET not in refused.out + refused.err and "rank" not in refused.out, refused
        assert job.rc is None, job.err
        with open(go, "w", encoding="ascii"):
            pass
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err + open(out, encoding="utf-8").read()
    assert sorted(done.out.splitlines()) == [f"rank {r} of alice {SECRET}" for r in range(2)]
    left = f"{users.home[VICTIM]}/.ddrun"
    assert not os.path.isdir(left) or os.listdir(left) == []


def seen_by(users, node, text):
    """Return the first word that begins with `text` in the argument lists of the node's processes, as the attacker reads them."""
    code = (f"for f in /proc/[0-9]*/cmdline; do tr '\\0' '\\n' <$f 2>/dev/null | grep -- '^{text}' && break; done; true")
    words = users.cluster.run(["sh", "-c", code], node=node, user=ATTACKER, cwd="/").out.splitlines()
    return words[0] if words else None


def test_the_cookie_is_a_key_on_demand_alone(users, cookies):
    cookie, _ = cookies
    for name in ("node1", "node2"):
        users.cluster.munge(name, False)

    def start(i, *options):
        return users.start(VICTIM, f"node{i + 1}", DDRUN, "--nproc-per-node=1", "--rdzv-timeout=60s", *options, "echo", "ran",
                           **{**pbs_job(users.place, cookie, i), "HOME": "/nowhere"})
    with start(0) as alone:
        done = alone.wait(LIMIT)
    assert done.rc == 2 and "--key-source=pbs-cookie" in done.err and "--key-file" in done.err, done
    with start(0, "--key-source=pbs-cookie") as first, start(1, "--key-source=pbs-cookie") as second:
        done = [first.wait(LIMIT), second.wait(LIMIT)]
    assert [(d.rc, d.out) for d in done] == [(0, "ran\n")] * 2, done
    assert some_line(done[0].err, "warning: ", "PBS_JOBCOOKIE")


def test_starting_nodes_with_the_cookie_warns(users, cookies):
    cookie, _ = cookies
    users.cluster.munge("node1", False)
    task = " ".join(f"{k}={v}" for k, v in pbs_job(users.place, cookie, 1).items())
    starter = f"{users.place}/pbs_tmrsh"
    with open(starter, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nshift\nexec env -i HOME=/nowhere PATH=/bin:/usr/bin {task} \"$@\" </dev/null\n")
    os.chmod(starter, 0o755)
    script = {**pbs_job(users.place, cookie, 0), "PBS_TASKNUM": "1", "HOME": "/nowhere"}
    common = [DDRUN, "--launcher=pbs_tmrsh", f"--launch-command={starter}", "--nproc-per-node=1"]
    with users.start(VICTIM, "node1", *common, "echo", "ran", **script) as job:
        done = job.wait(LIMIT)
    assert done.rc == 2 and "--key-source=pbs-cookie" in done.err, done
    with users.start(VICTIM, "node1", *common, "--key-source=pbs-cookie", "echo", "ran", **script) as job:
        done = job.wait(LIMIT)
    assert (done.rc, done.out) == (0, "ran\n" * 2) and some_line(done.err, "warning: ", "PBS_JOBCOOKIE"), done


def test_a_run_of_the_same_job_id_with_another_cookie_is_refused(users, cookies):
    """A requeued job keeps its id, and agents left over from its previous run belong to the same user."""
    cookie, _ = cookies
    command = [DDRUN, "--nproc-per-node=1", "--log-level=info", "echo", "ran"]
    with users.start(VICTIM, "node1", *command, **pbs_job(users.place, cookie, 0)) as first:
        until(lambda: "key source" in first.err, LIMIT, lambda: first.err)
        with users.start(VICTIM, "node2", DDRUN, "--rdzv-timeout=15s", *command[1:], **pbs_job(users.place, "0" * 32, 1)) as old:
            assert old.wait(LIMIT).rc != 0 and some_line(old.err, "error: ", "key"), old.err
        with users.start(VICTIM, "node2", *command, **pbs_job(users.place, cookie, 1)) as second:
            assert second.wait(LIMIT).rc == 0, second.err
        assert first.wait(LIMIT).rc == 0, first.err


# --- what starters expose ---

READER = """
import glob, os, sys
seen = set()
print("reading", flush=True)
while not os.path.exists(sys.argv[1]):
    for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                text = f.read().replace(b"\\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text not in seen:
            seen.add(text)
            print(text, flush=True)
"""

# Records its environment, and runs the remote command on this machine.
STARTER = """#!/bin/sh
env >{env}
while [ ! -e {go} ]; do sleep 0.05; done
for last; do :; done
case $last in
exec\\ *) exec sh -c "$last" ;;
esac
while [ "$1" != "{ddrun}" ]; do shift; done
exec "$@"
"""


def long_hex(text):
    """Return the words as long as a 128-bit key."""
    return re.findall(r"[0-9a-fA-F]{32,}", text)


@pytest.mark.parametrize("launcher", ["ssh", "oarsh", "pbs_tmrsh", "pbsdsh", "blaunch", "qrsh"])
def test_no_starter_shows_a_key_to_who_reads_all_argument_lists(users, launcher):
    """The starter's environment has no key either: Grid Engine, for example, writes it to a file."""
    go, end = (f"{users.place}/{name}-{launcher}" for name in ("go", "end"))
    env, starter = f"{users.home[VICTIM]}/env-{launcher}", f"{users.place}/{launcher}"
    with open(starter, "w", encoding="ascii") as f:
        f.write(STARTER.format(env=env, go=go, ddrun=DDRUN))
    os.chmod(starter, 0o755)
    with users.start(ATTACKER, "node1", "python3", "-c", READER, end) as reader:
        reader.wait_for("reading")
        with users.start(VICTIM, "node1", DDRUN, "--hosts=node1,node2", f"--launcher={launcher}", f"--launch-command={starter}",
                         "--nproc-per-node=1", "echo", "ran", DDRUN_KEY=KEY, DDRUN_ETCD_PASSWORD=SECRET) as job:
            until(lambda: "--launched=" in reader.out, LIMIT, lambda: job.err + reader.out)
            with open(go, "w", encoding="ascii"):
                pass
            done = job.wait(LIMIT)
        with open(end, "w", encoding="ascii"):
            pass
        read = reader.wait(LIMIT).out
    assert done.rc == 0 and done.out == "ran\n" * 2, done.err
    assert long_hex(read) == [] and SECRET not in read
    with open(env, encoding="utf-8") as f:
        text = f.read()
    assert "PATH=" in text and KEY not in text and SECRET not in text and long_hex(text) == []


def test_srun_shows_no_key_to_who_reads_all_argument_lists(slurm):  # noqa: F811
    end = os.path.join(slurm.cluster.work, "end-of-reading")
    slurm.file("batch", f"#!/bin/sh\n{DDRUN} --nproc-per-node=1 sleep 1\n")
    with slurm.cluster.popen(["python3", "-c", READER, end], node="node1", user=ATTACKER) as reader:
        reader.wait_for("reading")
        with slurm.popen(["sbatch", "--wait", "-N2", "--output=out", "--error=err", "batch"]) as job:
            rc = job.wait(LIMIT).rc
        with open(end, "w", encoding="ascii"):
            pass
        read = reader.wait(LIMIT).out
    os.unlink(end)
    with open(slurm.file("err"), encoding="utf-8") as f:
        assert rc == 0, f.read()
    assert "srun " in read and "ddrund" in read and long_hex(read) == []
