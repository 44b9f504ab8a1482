"""Containers: ddrun outside with workers inside, and ddrun inside. Always with bubblewrap; with Apptainer, Charliecloud and
Podman where they are installed and work."""

import os
import signal
import subprocess
import time

import pytest

from containers import PY, RUNTIMES, tree, usable, with_descriptor
from support import DDRUN, Job, clean_env, json_lines, marked, program, some_line, until


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("container")
    os.chmod(place, 0o755)
    return tree(str(place / "root"))


@pytest.fixture(scope="module", params=list(RUNTIMES))
def runtime(request, root):
    return usable(request.param, root)


# The runtimes other than bubblewrap are slow.
SLOWLY = pytest.mark.parametrize(
    "runtime", [pytest.param(r, marks=[] if r == "bwrap" else pytest.mark.large) for r in RUNTIMES], indirect=True)


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a job with a HOME of its own: files of a runtime there are not ddrun's."""
    return lambda *args: Job(*args, home=str(tmp_path))


@pytest.fixture
def run(start):
    def to_its_end(*args):
        with start(*args) as job:
            job.wait()
            job.assert_nothing_left()
            return job

    return to_its_end


def outside(runtime, *options):
    """Return ddrun's arguments for two workers, each in a container of its own."""
    return ["--nproc-per-node=2", "--no-python", *options, *runtime, PY, program("inside.py")]


def ready(job, n=2):
    seen = ""
    while seen.count('"ready"') < n:
        seen += job.line('"ready"')
    return seen


def podmans():
    """Return the ids of the containers that podman lists as running. On a busy machine podman may still list one that has
    ended."""
    listed = subprocess.run(["podman", "ps", "-q"], capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def test_workers_inside_meet_and_their_code_is_ddruns(runtime, run):
    job = run(*outside(runtime), "3")
    assert job.p.returncode == 3, job.err
    workers = json_lines(job.out)
    assert [w["met"] for w in workers] == [True, True], job.out + job.err
    assert all(w["mounts"] != os.readlink("/proc/self/ns/mnt") for w in workers)
    assert "exit code 3" in job.err


def test_who_is_somebody_else_inside_is_still_this_user(run):
    job = run(*outside(usable("bwrap", None)), "0")
    assert job.p.returncode == 0, job.err
    assert [(w["uid"], w["met"]) for w in json_lines(job.out)] == [(5, True)] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_who_is_another_user_outside_is_refused_with_both_uids(run):
    job = run("--nproc-per-node=1", "--no-python", "setpriv", "--reuid=12345", "--clear-groups", PY,
              program("inside.py"), "0")
    assert [w["met"] for w in json_lines(job.out)] == ["[Errno 104] Connection reset by peer"], job.out
    assert some_line(job.err, "warning: ", "refused", "uid 12345", "uid 0")


@SLOWLY
def test_a_signal_comes_once_and_term_ends_them(runtime, start):
    with start(*outside(runtime, "--shutdown-timeout=30s"), "hear") as job:
        seen = ready(job)
        job.p.send_signal(signal.SIGUSR1)
        while seen.count(f'"signal": {signal.SIGUSR1.value}') < 2:
            seen += job.line('"signal"')
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143, job.err
        heard = [(w["rank"], w["signal"]) for w in json_lines(seen + job.out) if "signal" in w]
        assert sorted(h for h in heard if h[1] == signal.SIGUSR1) == [(0, signal.SIGUSR1), (1, signal.SIGUSR1)]
        assert {(0, signal.SIGTERM), (1, signal.SIGTERM)} <= set(heard)
        job.assert_nothing_left()


@pytest.mark.parametrize("runtime, victim", [
    pytest.param(r, v, marks=[] if r == "bwrap" or (r, v) == ("ch-run", "nobody") else pytest.mark.large)
    for r in RUNTIMES for v in ("agent", "guardian", "nobody")], indirect=["runtime"])
def test_nothing_is_left_of_containers_that_do_not_heed_term(runtime, start, victim):
    podman = runtime[0] == "podman"
    before = podmans() if podman else set()
    with start(*outside(runtime, "--shutdown-timeout=0.2s"), "stay") as job:
        ready(job)
        agent = job.agents()[0]
        if victim == "nobody":
            job.p.send_signal(signal.SIGTERM)
        else:
            os.kill(agent if victim == "agent" else job.p.pid, signal.SIGKILL)
        assert job.wait() == {"agent": 137, "guardian": -9, "nobody": 143}[victim], job.err
        until(lambda: not marked(job.mark), say="the end of all processes")
        if podman:
            assert podmans() == before
        job.assert_nothing_left()


@SLOWLY
def test_a_heartbeat_comes_through_the_wall(runtime, run):
    start = time.monotonic()
    job = run(*outside(with_descriptor(runtime), "--hang-timeout=15s", "--hang-sign=file"), "beat")
    assert job.p.returncode == 0, job.err
    assert time.monotonic() - start > 15 and len(json_lines(job.out)) == 4


@pytest.mark.parametrize("runtime", [pytest.param("podman", marks=pytest.mark.large)], indirect=True)
def test_the_report_says_that_it_cannot_read_containers_of_podman(runtime, start, tmp_path):
    """Rank 0 fails when the container of rank 1 runs."""
    go = tmp_path / "go"
    inside = " ".join([*runtime, PY, program("inside.py"), "stay"])
    with start("--nproc-per-node=2", "--no-python", "--shutdown-timeout=0.2s", "--stacks=auto", "--stacks-timeout=120s",
               "sh", "-c", f"[ $RANK = 1 ] && exec {inside}; until [ -e {go} ]; do sleep 0.1; done; exit 5") as job:
        ready(job, 1)
        go.touch()
        assert job.wait() == 5, job.err
        assert some_line(job.err, "rank 1: not read: the worker runs in a container of Podman"), job.err
        job.assert_nothing_left()


def test_ddrun_inside(runtime):
    """Each simulated node has a link of its own."""
    job = subprocess.run([*runtime, DDRUN, "--simulate-nodes=2", "--nproc-per-node=2", PY, program("inside.py"), "4"],
                         env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert job.returncode == 4, job.stderr
    assert sorted((w["rank"], w["met"]) for w in json_lines(job.stdout)) == [(r, True) for r in range(4)], job.stderr
