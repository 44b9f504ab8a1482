"""ddrun-tm, which starts a command on a node of a PBS job through PBS's library, with a stand-in for that library.

The stand-in behaves as OpenPBS 23.06 was measured to do; all nodes are this machine (test_pbs.py has several)."""

import os
import shutil
import signal
import socket
import subprocess

import pytest

from support import BUILD, LIMIT, Job, clean_env, program, some_line, until, without, without_tips

TM = os.path.join(BUILD, "ddrun-tm")
JOB = {"PBS_JOBID": "7.server", "PBS_JOBCOOKIE": "0123456789ABCDEF0123456789ABCDEF", "PBS_NODENUM": "0", "PBS_TASKNUM": "1",
       "PBS_MOMPORT": "15003", "PBS_ENVIRONMENT": "PBS_BATCH"}

pytestmark = pytest.mark.skipif(not os.access(TM, os.X_OK), reason=f"{TM} is not built")


def stand_in(folder, name="libpbs.so.0"):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    path = os.path.join(folder, name)
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", program("standin_tm.c"), "-o", path], check=True)
    return path


def no_pbs():
    """Return a command prefix that hides an installed PBS, which ddrun-tm would find where a test removes the stand-in."""
    return without("/opt/pbs", "/opt/torque")


class Job7:
    """A job whose node file names three hosts, the second one twice."""

    def __init__(self, place):
        self.place = place
        stand_in(str(place))
        (place / "nodes").write_text("n1.site.org\nn2.site.org\nn3.site.org\nn2.site.org\n")
        (place / "home").mkdir()
        self.env = dict(JOB, PBS_NODEFILE=str(place / "nodes"), LD_LIBRARY_PATH=str(place), HOME=str(place / "home"),
                        STANDIN_CALLS=str(place / "calls"))

    def environment(self, **more):
        return {k: v for k, v in clean_env(**{**self.env, **more}).items() if v != ""}

    def run(self, *words, **more):
        return subprocess.run([*no_pbs(), TM, *words], env=self.environment(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT, check=False)

    def start(self, *words, **more):
        return subprocess.Popen([TM, *words], env=self.environment(**more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def calls(self):
        return (self.place / "calls").read_text().splitlines()


@pytest.fixture
def job(tmp_path):
    return Job7(tmp_path)


@pytest.mark.parametrize("end, code", [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)])
def test_the_exit_code_comes_back(job, end, code):
    assert job.run("n2.site.org", "sh", "-c", end).returncode == code


def test_the_library_is_begun_and_ended_once_and_a_host_is_its_first_line(job):
    assert job.run("N2", "true").returncode == 0
    assert job.calls() == ["init", "spawn 1", "finalize"]


def test_arguments_arrive_as_they_are(job):
    words = ["a b", "it's", "$HOME", "*", "", "\\b,c", "ä", "x" * 100000]
    done = job.run("n3", "/usr/bin/printf", "%s|", *words)
    assert (done.returncode, done.stdout) == (0, "".join(w + "|" for w in words))


def test_a_task_has_its_own_environment_and_not_the_callers(job):
    """Variables that a caller passes on override those of the mom: every task would be task 1 of node 0."""
    done = job.run("n2", "sh", "-c", "echo $PBS_NODENUM $PBS_TASKNUM $FROM_SCRIPT $PATH; pwd", FROM_SCRIPT="seen")
    assert done.stdout.splitlines() == ["1 20000001 /bin:/usr/bin", str(job.place / "home")]


def test_in_a_task_that_is_not_told_where_the_node_file_is_it_is_known(job):
    done = job.run("n2", "true", PBS_NODEFILE="", PBS_JOBID="no.such.job")
    assert done.returncode == 255
    assert "/var/spool/pbs/aux/no.such.job" in done.stderr
    torque = job.run("n2", "true", PBS_NODEFILE="", PBS_JOBID="no.such.job", PBS_VERSION="TORQUE-6.1.3")
    assert "/var/spool/torque/aux/no.such.job" in torque.stderr


def test_torques_library_does_as_well(job):
    os.rename(job.place / "libpbs.so.0", job.place / "libtorque.so.2")
    assert job.run("n2", "sh", "-c", "exit 5", PBS_VERSION="TORQUE-6.1.3").returncode == 5


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_go_to_the_task(job, sig):
    name = sig.name[3:]
    with job.start("n2", "sh", "-c", f"trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done") as p:
        assert p.stdout.readline() == "ready\n"
        p.send_signal(sig)
        assert p.wait(LIMIT) == 9
    assert f"kill {int(sig)}" in job.calls()


def test_signals_that_were_ignored_before_stay_so(job):
    """ddrun starts it so: the job's signals arrive over ddrun's own connection, and must not come twice."""
    words = ["n2", "sh", "-c", "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 4"]
    with subprocess.Popen(["sh", "-c", 'trap "" TERM; exec "$@"', "sh", TM, *words], env=job.environment(), stdout=subprocess.PIPE,
                          text=True) as p:
        assert p.stdout.readline() == "ready\n"
        p.send_signal(signal.SIGTERM)
        (job.place / "home" / "go").touch()
        assert p.wait(LIMIT) == 4
    assert not any(call.startswith("kill") for call in job.calls())


def test_a_task_ends_with_those_who_have_started_it(job):
    """Here the process above ddrun-tm is killed."""
    told = job.place / "told"
    task = f"trap 'touch {told}; exit 0' TERM; echo $$; while :; do sleep 0.05; done"
    with subprocess.Popen(["sh", "-c", '"$@"; :', "sh", TM, "n2", "sh", "-c", task], env=job.environment(), stdout=subprocess.PIPE,
                          text=True) as p:
        assert p.stdout.readline().strip().isdigit()
        p.kill()
        until(told.exists, LIMIT)
        assert p.stdout.read() == ""  # EOF: ddrun-tm, which also holds the pipe, has ended


@pytest.mark.parametrize("what, words", [
    ({"LD_LIBRARY_PATH": ""}, ["tried libpbs.so.0", "libtorque.so.2", "LD_LIBRARY_PATH"]),
    ({"PBS_JOBCOOKIE": ""}, ["PBS_JOBCOOKIE"]),
    ({"STANDIN_FAILS": "17000"}, ["tm_init of libpbs.so.0", "17000"]),
])
def test_what_stands_in_the_way_is_one_sentence(job, what, words):
    for done in (job.run("n2", "true", **what), job.run("--check", **what)):
        assert done.returncode == 255 and done.stdout == ""
        assert len(without_tips(done.stderr)) == 1 and all(word in done.stderr for word in words), done.stderr


def test_a_library_that_is_none_of_pbs_is_not_used(job):
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", str(job.place / "libpbs.so.0")], check=True)
    done = job.run("n2", "true")
    assert done.returncode == 255 and some_line(done.stderr, "libpbs.so.0", "tm_init"), done.stderr


@pytest.mark.parametrize("host, nodes, words", [("n4", None, "n4"),
                                                ("n2", "n1\nn2\n", "2 nodes")])
def test_a_host_that_is_not_the_jobs_is_refused(job, host, nodes, words):
    (job.place / "true").write_text(nodes or "")
    done = job.run(host, "true", STANDIN_NODES=str(job.place / "true") if nodes else "")
    assert done.returncode == 255 and words in done.stderr, done.stderr


def test_without_a_command_it_says_how_it_is_used():
    done = subprocess.run([TM, "n2"], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 2 and done.stderr.startswith("usage: ddrun-tm HOST COMMAND")


# --- ddrun and ddrun-tm ---


def of_job(job, *words, **more):
    (job.place / "nodes").write_text(f"{socket.gethostname()}\nn2.site.org\n")
    return Job(*words, env=job.environment(**more), before=no_pbs())


def test_ddrun_says_why_it_cannot_use_the_library_and_starts_nothing(job):
    for what, words in (({"LD_LIBRARY_PATH": ""}, "--launcher=tm: ddrun-tm: "),
                        ({"STANDIN_FAILS": "17005"}, "tm_init")):
        with of_job(job, "--launcher=tm", "touch", str(job.place / "ran"), **what) as started:
            assert started.wait() == 2
            assert words in started.err and len(without_tips(started.err)) == 1, started.err
        assert not (job.place / "ran").exists()


def test_without_the_library_ddrun_says_what_to_write_as_it_did(job):
    with of_job(job, "true", LD_LIBRARY_PATH="", PATH="/usr/bin:/bin") as started:
        assert started.wait() == 2
        assert "mpiexec -n 2 --ppn 1 ddrun" in started.err and len(without_tips(started.err)) == 1, started.err
