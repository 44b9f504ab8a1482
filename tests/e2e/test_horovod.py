"""Horovod: the variables of its workers, the rendezvous server of each node, and the real Horovod where it is built.

contrib/horovod builds it (once, 3 to 5 minutes), which contrib/check --all does, too.
"""

import json
import os
import signal
import subprocess
import textwrap

import pytest

from support import DDRUN, HERE, PYTHON, Job, clean_env, program, without_tips

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

CLIENT = program("hvd_client.py")
SIMULATED = ["--simulate-nodes=2", "--nproc-per-node=2"]


def ours(**extra):
    return {n: v for n, v in clean_env().items() if "HOROVOD" not in n} | extra


def run(*args, **extra):
    with Job(*args, env=ours(**extra)) as job:
        assert job.wait() == 0, job.err
        job.assert_nothing_left()
        return job


PRINT_ENV = """
    import json, os
    print(json.dumps({n: v for n, v in os.environ.items() if "HOROVOD" in n}) + "\\n", end="", flush=True)
"""


def environments(tmp_path, *options, **extra):
    worker = tmp_path / "worker.py"
    worker.write_text(textwrap.dedent(PRINT_ENV))
    job = run(*options, str(worker), **extra)
    return sorted((json.loads(line) for line in job.out.splitlines()), key=lambda e: int(e["HOROVOD_RANK"]))


def test_workers_are_told_their_places(tmp_path):
    stale = {"HOROVOD_RANK": "77", "HOROVOD_CROSS_SIZE": "9", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1", "_HOROVOD_SECRET_KEY": "x"}
    envs = environments(tmp_path, *SIMULATED, **stale)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [tuple(int(e["HOROVOD_" + n]) for n in names) for e in envs] == [
        (0, 4, 0, 2, 0, 2), (1, 4, 1, 2, 0, 2), (2, 4, 0, 2, 1, 2), (3, 4, 1, 2, 1, 2)]
    assert len({(e["HOROVOD_HOSTNAME"], e["HOROVOD_GLOO_RENDEZVOUS_PORT"]) for e in envs}) == 2
    for e in envs:
        assert e["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1" and e["HOROVOD_GLOO_RENDEZVOUS_PORT"] != "1"
        assert (e["HOROVOD_CONTROLLER"], e["HOROVOD_CPU_OPERATIONS"]) == ("gloo", "gloo")
        assert "_HOROVOD_SECRET_KEY" not in e and "HOROVOD_TIMELINE" not in e and "HOROVOD_ELASTIC" not in e


def test_what_the_user_has_chosen_is_kept(tmp_path):
    mine = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_GLOO_IFACE": "ib7", "HOROVOD_TIMELINE": "/x/t.json",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "5", "HOROVOD_CPU_OPERATIONS": "ccl"}
    for e in environments(tmp_path, *SIMULATED, **mine):
        assert {n: e[n] for n in mine} == mine


def test_64_ranks_of_4_nodes_find_all_the_others():
    job = run("--simulate-nodes=4", "--nproc-per-node=16", CLIENT, "bootstrap")
    assert len(job.out.splitlines()) == 64


def test_process_sets_and_a_second_init():
    job = run("--simulate-nodes=3", "--nproc-per-node=2", CLIENT, "twice")
    assert len(job.out.splitlines()) == 6


def test_elastic_workers_keep_their_places():
    run(*SIMULATED, CLIENT, "elastic")


def test_every_round_has_a_server_of_its_own(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(f"import os, sys, runpy\nsys.argv[1:] = ['fresh']\nrunpy.run_path({CLIENT!r})\n"
                      "sys.exit(os.environ['DDRUN_ROUND'] == '0' and os.environ['RANK'] == '3')\n")
    job = run(*SIMULATED, "--max-restarts=1", str(worker))
    assert job.out.count("requests in") >= 4


@pytest.mark.parametrize("what", ["hostile", "silent", "gone"])
def test_strange_requests_are_refused_and_the_job_goes_on(what):
    run("--nproc-per-node=2", CLIENT, what, "bootstrap")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_not_answered():
    job = run("--nproc-per-node=1", CLIENT, "foreign", "bootstrap")
    assert "another user" in job.err


def test_nothing_listens_after_the_agent_was_killed():
    with Job("--nproc-per-node=1", CLIENT, "sleep", env=ours()) as job:
        port = int(job.line("asleep").split()[1])
        os.kill(job.agents()[0], signal.SIGKILL)
        assert job.wait() != 0
        job.assert_nothing_left()
        with open("/proc/net/tcp") as f:
            assert not [line for line in f if f":{port:04X} " in line.split()[1] + " " and line.split()[3] == "0A"]


# ---- horovodrun's command line --------------------------------------------------------------------

SHOW = ["bash", "-c", "echo $RANK/$WORLD_SIZE${HOROVOD_ELASTIC:+ elastic}"]


@pytest.mark.parametrize("options, ranks", [
    (["-np", "3"], ["0/3", "1/3", "2/3"]),
    (["-np=2", "-H", "localhost:4"], ["0/2", "1/2"]),
    (["--num-proc=2", "--gloo", "--ssh-port=22", "--ssh-identity-file=key"], ["0/2", "1/2"]),
    (["-H", "localhost:2", "-p", "22", "-i", "key"], ["0/2", "1/2"]),
    (["--simulate-nodes=2", "-np", "4"], ["0/4", "1/4", "2/4", "3/4"]),
    (["--simulate-nodes=2", "--ntasks=4", "--ntasks-per-node=2"], ["0/4", "1/4", "2/4", "3/4"]),
    (["--simulate-nodes=2", "--min-np=2", "--max-np=4", "--nproc-per-node=2"], [f"{r}/4 elastic" for r in range(4)]),
])
def test_horovodruns_options_say_how_many_workers(options, ranks):
    assert sorted(run(*options, *SHOW).out.splitlines()) == ranks


def test_slots_of_a_host_file_are_filled_in_order(tmp_path):
    (tmp_path / "hosts").write_text("# ours\nlocalhost slots=3\nelsewhere slots=4\n")
    assert sorted(run("-hostfile", str(tmp_path / "hosts"), "-np", "2", *SHOW).out.splitlines()) == ["0/2", "1/2"]


def test_called_by_its_name(tmp_path):
    link = tmp_path / "horovodrun"
    link.symlink_to(DDRUN)
    out = subprocess.run([str(link), "-np", "2", "-H", "localhost:2", *SHOW], env=ours(), stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, check=False)
    assert (out.returncode, sorted(out.stdout.splitlines())) == (0, ["0/2", "1/2"]), out.stderr


@pytest.mark.parametrize("options, says", [
    (["-np", "3", "-H", "localhost:2"], "2 slots"),
    (["--ntasks=4", "--ntasks-per-node=2"], "--ntasks 4 contradicts --ntasks-per-node 2: the job has 1 node"),
    (["-np", "2", "--nproc-per-node=gpu"], "-np and --nproc-per-node both"),
    (["--simulate-nodes=2", "-n", "5"], "-n 5 is not divisible by 2 nodes\n  tip: use a multiple of 2: simulated nodes"),
    (["-x", "2=3"], "--env (-x): '2=3' is not NAME=VALUE"),
    (["-H", "localhost:2,elsewhere"], "elsewhere"),
    (["--min-np=2"], "--max-np"),
    (["--max-np=4", "--nproc-per-node=2"], "--max-np 4 needs -np or --min-np"),
    (["-np", "8", "--max-np=4", "--nproc-per-node=2"], "-np 8 exceeds --max-np 4"),
    (["--min-np=2", "--max-np=4"], "--nproc-per-node=N"),
    (["--min-np=2", "--max-np=3", "--nproc-per-node=2"], "multiple of"),
    (["--host-discovery-script=./hosts.sh"], "--host-discovery-script"),
    (["--output-filename=out"], "--log-dir=DIR"),
    (["--config-file=c.yaml"], "YAML"),
])
def test_what_horovodrun_has_and_ddrun_has_not_is_said_in_one_sentence(options, says):
    with Job(*options, *SHOW, env=ours()) as job:
        assert job.wait() == 2
        assert says in job.err and len(without_tips(job.err)) == 1 and job.out == "", job.err


# ---- the real one ---------------------------------------------------------------------------------

BUILDER = os.path.join(HERE, "..", "..", "contrib", "horovod")


def site():
    """Return the directory with Horovod for the tests' Python, or None if it is not built."""
    found = subprocess.run([BUILDER, "--have", PYTHON], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


SITE = site()
real = pytest.mark.skipif(SITE is None, reason="Horovod has not been built (contrib/check --all does, or contrib/horovod)")

TRAIN = """
    import os, sys, torch
    import horovod.torch as hvd
    sets = [hvd.ProcessSet([0, 2])]
    hvd.init(process_sets=sets)
    def total(**how):
        return hvd.allreduce(torch.full((4,), float(hvd.rank() + 1)), op=hvd.Sum, **how).tolist()
    def say(what, numbers):
        print(f"{what} {hvd.rank()} of {hvd.size()}: {numbers[0]:.0f}\\n", end="", flush=True)
    assert (hvd.rank(), hvd.local_rank()) == (int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]))
    say("all", total())
    if hvd.rank() in (0, 2):
        say("even", total(process_set=sets[0]))
    if os.environ["DDRUN_ROUND"] == "0" and str(hvd.rank()) == sys.argv[1]:
        os.kill(os.getpid(), 9)
    hvd.shutdown()
    hvd.init()
    say("again", total())
"""


def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return str(path)


def expected(extra=()):
    return sorted([f"all {r} of 4: 10" for r in range(4)] + [f"again {r} of 4: 10" for r in range(4)]
                  + [f"even {r} of 4: 4" for r in (0, 2)] + list(extra))


@pytest.mark.large
@real
def test_real_horovod_on_two_nodes(tmp_path):
    job = run(*SIMULATED, train(tmp_path), "nobody", PYTHONPATH=SITE)
    assert sorted(job.out.split("\n")[:-1]) == expected()


@pytest.mark.large
@real
@pytest.mark.parametrize("dies", ["0", "3"])
def test_real_horovod_starts_again_after_a_loss(tmp_path, dies):
    job = run(*SIMULATED, "--max-restarts=1", train(tmp_path), dies, PYTHONPATH=SITE)
    assert sorted(line for line in job.out.split("\n") if line.startswith("again")) == [f"again {r} of 4: 10" for r in range(4)]
