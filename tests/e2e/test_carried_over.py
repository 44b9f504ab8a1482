"""Options and habits that users bring from mpirun, srun and other launchers."""

import os
import re
import signal
import subprocess

import pytest

from support import BUILD, DDRUN, KEY, LIMIT, Job, answered, built_with, clean_env, parent, run, some_line, until, without_tips

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


# ---- --chdir ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Return a directory with a program that prints where it runs."""
    there = tmp_path / "there"
    there.mkdir()
    program = there / "where.sh"
    program.write_text('#!/bin/sh\necho "$(pwd) $PWD $(dirname "$TORCHELASTIC_ERROR_FILE")"\n')
    program.chmod(0o755)
    return there


@pytest.mark.parametrize("option", ["--chdir=there", "-Dthere", "-D{}"])
@pytest.mark.parametrize("script", ["where.sh", "./where.sh"])
def test_the_workers_run_where_chdir_says(folder, option, script):
    """Log files are where they would be without --chdir."""
    with Job("--simulate-nodes=2", option.format(folder), "--log-dir=logs", script, env=clean_env(), cwd=folder.parent) as job:
        assert job.wait() == 0, job.err
        lines = [line.split() for line in job.out.splitlines()]
        assert [line[:2] for line in lines] == [[str(folder)] * 2] * 2
        assert all(line[2].startswith(str(folder.parent / "logs") + "/") for line in lines)
        assert (folder.parent / "logs").is_dir() and not (folder / "logs").exists()


def test_dry_run_shows_the_folder(folder):
    job = run("--dry-run", "-D", str(folder), "where.sh")
    assert job.p.returncode == 0 and f"  PWD={folder}\n" in job.out and f"  run {folder}/./where.sh\n" in job.out


def test_a_folder_that_is_not_there_starts_nothing(tmp_path):
    job = run("--simulate-nodes=2", f"--chdir={tmp_path}/none", "echo", "started")
    assert job.p.returncode == 2 and job.out == ""
    assert some_line(job.err, "error: ", ": No such file or directory") and len(without_tips(job.err)) == 1
    assert some_line(job.err, "--chdir", f"{tmp_path}/none", os.uname().nodename)


def test_a_folder_that_one_node_lacks_ends_the_job(folder):
    """Node 1 starts in a directory where the relative name does not exist."""
    env = clean_env(DDRUN_KEY=KEY)
    options = ["--hosts=127.0.0.1,127.0.0.2", "--chdir=there", "--rdzv-id=carried", "--rdzv-timeout=60s"]
    with Job(*options, "--node-rank=0", "echo", "started", env=env, cwd=folder.parent) as first, \
            Job(*options, "--node-rank=1", "echo", "started", env=env, cwd=folder) as second:
        assert (first.wait(), second.wait()) == (2, 2), first.err + second.err
        assert first.out == second.out == ""
        assert some_line(first.err, "--chdir", "there", "127.0.0.2"), first.err


def test_a_folder_that_is_gone_at_a_restart_is_told(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    with Job("--standalone", "--max-restarts=1", f"--chdir={there}", "sh", "-c", f"echo started; rmdir {there}; exit 3",
             env=clean_env()) as job:
        assert job.wait() != 0
        assert job.out == "started\n" and some_line(job.err, "--chdir", ": No such file or directory"), job.err
        job.assert_nothing_left()


# ---- --timeout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_ends_when_its_time_is_over(nodes):
    with Job(f"--simulate-nodes={nodes}", "--timeout=300ms", "--nproc-per-node=2", "sleep", "1000", env=clean_env()) as job:
        assert job.wait() == 124
        assert some_line(job.err, "--timeout", "0.3"), job.err
        job.assert_nothing_left()


def test_the_time_counts_while_nodes_are_missing():
    with Job("--hosts=127.0.0.1,127.0.0.2", "--node-rank=0", "--timeout=300ms", "echo", "started",
             env=clean_env(DDRUN_KEY=KEY)) as job:
        assert job.wait() == 124 and job.out == ""
        assert "--timeout" in job.err, job.err


@pytest.mark.parametrize("where", [["--hosts=127.0.0.1,127.0.0.2", "--node-rank=1", "--master-port=1"],
                                   ["--rdzv-endpoint=etcd://127.0.0.1:1/x", "--rdzv-id=a", "--nnodes=2"]])
def test_who_has_found_no_host_gives_up_when_the_time_is_over(where):
    with Job(*where, "--timeout=300ms", "echo", "started", env=clean_env(DDRUN_KEY=KEY)) as job:
        if "etcd" in where[0] and not built_with("CURL"):
            pytest.skip("there is no ddrun with libcurl (Debian: libcurl4-openssl-dev)")
        assert job.wait() == 124 and job.out == ""
        assert some_line(job.err, "--timeout", "0.3"), job.err
        job.assert_nothing_left()


def test_a_worker_that_ignores_the_end_is_killed():
    with Job("--standalone", "--timeout=300ms", "--shutdown-timeout=100ms", "sh", "-c", "trap '' TERM; sleep 1000 & wait; wait",
             env=clean_env()) as job:
        assert job.wait() == 124
        job.assert_nothing_left()


def test_the_code_stays_when_the_daemon_is_lost_after_the_time_is_over(tmp_path):
    """The agent then ends its workers by itself."""
    over = tmp_path / "over"
    with Job("--standalone", "--timeout=1s", "--shutdown-timeout=1s", "sh", "-c", f"trap 'touch {over}' TERM; while :; do sleep 0.05; done",
             env=clean_env()) as job:
        until(lambda: over.exists() or job.p.poll() is not None, say="the end of the time")
        for daemon in job.processes("ddrund"):
            os.kill(daemon, signal.SIGKILL)
        assert job.wait() == 124, job.err
        job.assert_nothing_left()


def test_the_time_goes_on_when_the_host_is_lost(clock):
    """The leader's successor knows when the job began: half of the time is over before, and half later."""
    with Job("--simulate-nodes=3", "--nnodes=2:3", "--nproc-per-node=1", "--timeout=2h", "sh", "-c", "echo up; exec sleep 1000",
             env=clean_env(**clock.env)) as job:
        def wait_for_workers(n):
            while n > 0:
                n -= job.line("up").count("up")

        wait_for_workers(3)
        clock.advance(3600)
        agent = parent(job.processes("ddrund")[0])
        guardian = parent(agent)
        os.kill(agent, signal.SIGKILL)
        wait_for_workers(2)
        until(lambda: guardian not in job.processes("ddrun"), say="the end of the lost node: the last node's code counts")
        clock.advance(3600)
        assert job.wait() == 124, job.err
        assert "--timeout" in job.err, job.err
        job.assert_nothing_left()


def test_a_job_that_ends_in_time_is_not_touched():
    job = run("--standalone", "--timeout=1h", "sh", "-c", "exit 7")
    assert job.p.returncode == 7 and "--timeout" not in job.err


# ---- options of other launchers -----------------------------------------------------------------------


def config(*args):
    """Return {option: value} of the options that the command line sets."""
    job = run("--show-config", *args, "true")
    assert job.p.returncode == 0, job.err
    rows = [line.split("\t") for line in job.out.splitlines()]
    return {name: value for name, value, source in rows if source == "command line"}


@pytest.mark.parametrize("args, wanted", [
    ("--ntasks-per-node=4 --nodes=2", {"nproc-per-node": "4", "nnodes": "2"}),
    ("--ntasks 8", {"num-proc": "8"}),
    ("-n 8", {"num-proc": "8"}),
    ("-n8", {"num-proc": "8"}),
    ("-np 8 --oversubscribe --allow-run-as-root", {"num-proc": "8"}),
    ("-ppn 4", {"nproc-per-node": "4"}),
    ("-npernode=4", {"nproc-per-node": "4"}),
    ("-host a,b", {"hosts": "a,b"}),
    ("-hosts a,b", {"hosts": "a,b"}),
    ("--host=a:2,b:2", {"hosts": "a:2,b:2"}),
    ("-f hosts.txt", {"hostfile": "hosts.txt"}),
    ("-machinefile hosts.txt", {"hostfile": "hosts.txt"}),
    ("-wdir /data", {"chdir": "/data"}),
    ("--tag-output -v", {"label": "yes", "log-level": "info"}),
    ("--nproc_per_node=2 --use_env", {"nproc-per-node": "2"}),
    ("--num_gpus 2 --num_nodes=3 --no_local_rank", {"nproc-per-node": "2", "nnodes": "3"}),
    ("--num_processes=8 --num_machines 2 --machine_rank=1 --main_process_ip=n1 --main_process_port=29500 --multi_gpu",
     {"num-proc": "8", "nnodes": "2", "node-rank": "1", "master-addr": "n1", "master-port": "29500"}),
    ("--network-interfaces=lo --start-timeout=30 --reset-limit=3", {"iface": "lo", "rdzv-timeout": "30", "max-restarts": "3"}),
    ("--kill-on-bad-exit=1 -u", {}),
    ("-uv", {"log-level": "info"}),
    ("-fhosts.txt", {"hostfile": "hosts.txt"}),
    ("--pernode", {"nproc-per-node": "1"}),
])
def test_what_others_call_by_another_name(args, wanted):
    assert config(*args.split()) == wanted


@pytest.mark.parametrize("args, says", [
    ("--bind-to core", "--bind=none"),
    ("-map-by slot", "--nproc-per-node"),
    ("--mca btl tcp,self", "-x OMPI_MCA_NAME=VALUE"),
    ("-genv A b", "-x NAME=VALUE"),
    ("--output=%t.out", "--redirects=3"),
    ("--error err", "--redirects=3"),
    ("--output-filename out", "--redirects=3"),
    ("--export=ALL,A=b", "-x NAME=VALUE"),
    ("--gpus-per-node=4", "--nproc-per-node"),
    ("--cpus-per-task=4", "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1"),
    ("-c4", "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1"),
    ("-N 2", "--nnodes"),
    ("--time=10", "--timeout"),
    ("--include=n1:0,1", "--hosts"),
    ("--mixed_precision bf16", "ACCELERATE_MIXED_PRECISION"),
    ("--timeline-filename=t", "HOROVOD_TIMELINE"),
    ("--mpi=pmi2", "pmi1, pmix or auto"),
    ("--nproc_per_node", "--nproc-per-node=4"),
    ("-ppn", "-ppn=4"),
    ("-usize 8", "omit it"),
    ("-rmk slurm", "omit it"),
    ("-ppn=x", "-ppn: "),
])
def test_what_cannot_be_taken_gets_one_sentence_that_says_what_to_write(args, says):
    job = run(*args.split(), "--", "echo", "started")
    assert job.p.returncode == 2 and job.out == ""
    assert len(without_tips(job.err)) == 1 and says in job.err and args.split()[0].split("=")[0][:2] in job.err, job.err


def test_a_host_file_as_mpirun_has_it(tmp_path):
    (tmp_path / "hosts").write_text("# four\nlocalhost slots=2 max-slots=4\n")
    job = run("-n", "2", "--hostfile", "hosts", "sh", "-c", "echo $RANK/$WORLD_SIZE", cwd=tmp_path)
    assert job.p.returncode == 0 and sorted(job.out.split()) == ["0/2", "1/2"], job.err


PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "coming-from.md")


ELSEWHERE = ("srun ", "flux ", "uv ")  # programs that start ddrun


def column():
    """Return the right column of the page's tables."""
    with open(PAGE, encoding="utf-8") as f:
        return [line.split(" | ")[-1] for line in f if line.startswith("| `") or line.startswith(("| the ", "| other "))]


def test_the_lines_of_the_page_are_right(tmp_path):
    """Each command line in the right column is one that ddrun accepts."""
    (tmp_path / "flux").write_text("#!/bin/sh\necho 'node[1-2]'\n")
    (tmp_path / "flux").chmod(0o755)
    lines = [line for row in column() for line in re.findall(r"`([^`]*\bddrun [^`]*)`", row) if not line.startswith(ELSEWHERE)]
    assert len(lines) > 30
    for line in lines:
        before, _, rest = line.partition("ddrun ")
        shown = subprocess.run(["bash", "-c", f"{before} {DDRUN} --show-config {rest}"], cwd=tmp_path, capture_output=True, text=True,
                               timeout=LIMIT, env=clean_env(PATH=f"{tmp_path}:{os.environ['PATH']}"))
        assert shown.returncode == 0, (line, shown.stderr)


@pytest.mark.parametrize("other", ["mpirun -np 2 ./server : -np 6 ./client", "srun --multi-prog"])
def test_the_page_runs_two_programs_as_one_job(other, tmp_path):
    for program in ("server", "client"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho {program} "$RANK"\n')
        (tmp_path / program).chmod(0o755)
    with open(PAGE, encoding="utf-8") as f:
        line = re.search(rf"^\| `{re.escape(other)}.*`ddrun (.*)` \|$", f.read(), re.M).group(1)
    shown = subprocess.run(["bash", "-c", f"{DDRUN} {line}"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, env=clean_env())
    servers = 2 if "mpirun" in other else 1
    assert sorted(shown.stdout.splitlines()) == sorted(f"{'server' if r < servers else 'client'} {r}" for r in range(8)), shown.stderr


def test_the_commands_of_ddctl_on_the_page_work_in_a_job():
    commands = [command for row in column() for command in re.findall(r"`ddctl ([^`]*)`", row)]
    assert commands[-1] == "signal TERM" and len(commands) >= 3
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "sh", "-c", 'echo "ready $TORCHELASTIC_RUN_ID"; exec sleep 600') as job:
        name = re.search(r"ready (\S+)\n", job.line("ready")).group(1)
        for command in commands:
            more = {"jobs": [], "top": [f"--job={name}", "--once"]}.get(command.split()[0], [f"--job={name}"])
            done = answered([os.path.join(BUILD, "ddctl"), *command.split(), *more])
            assert done.returncode == 0, (command, done.stderr)
        assert job.wait() == 128 + signal.SIGTERM, job.err
