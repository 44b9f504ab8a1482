"""The end of the allocation: the signal before it, and the requeue after it. Stand-ins replace the scheduler's commands."""

import os
import signal
import time

import pytest

from support import LIMIT, Job, clean_env, json_lines, parent, program, run, some_line

SHOW = "JobId=77 JobName=b JobState={} Reason={} Requeue=1 PreemptTime={} TimeLimit=00:10:00"
STATES = {"cancelled": ("COMPLETING", "None", "None"), "preempted": ("RUNNING", "None", "2026-11-21T12:47:48"),
          "out of time": ("COMPLETING", "TimeLimit", "None"), "running": ("RUNNING", "None", "None")}


@pytest.fixture
def played(tmp_path):
    """Return played(name=script, ...), which returns an environment with these shell scripts as commands; they append their
    arguments to tmp_path/asked."""
    def environment(**commands):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, script in commands.items():
            (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n{script}\n')
            (folder / name).chmod(0o755)
        return clean_env(PATH=f"{folder}:{os.environ['PATH']}")

    environment.asked = lambda: (tmp_path / "asked").read_text().splitlines() if (tmp_path / "asked").exists() else []
    return environment


def hear(*options, env, **extra):
    """Run workers that print the signals that they receive."""
    return run("--simulate-nodes=2", "--shutdown-timeout=1m", *options, program("hear.py"), "USR1", "TERM", env={**env, **extra})


def heard(job):
    return sorted((line["rank"], line["signal"]) for line in json_lines(job.out) if "signal" in line)


def test_workers_of_all_nodes_hear_of_the_end_that_slurm_named():
    end = int(time.time()) + 600
    with Job("--simulate-nodes=2", "--signal-before-end=USR1@596", program("hear.py"), "USR1",
             env=clean_env(SLURM_JOB_END_TIME=str(end))) as job:
        seen = ""
        while seen.count("SIGUSR1") < 2:
            seen += job.line("SIGUSR1")
        assert all(line["at"] >= end - 596 for line in json_lines(seen) if "at" in line)
        job.p.send_signal(signal.SIGTERM)
        assert job.wait() == 143
        assert "allocation" in job.err and (seen + job.out).count("SIGUSR1") == 2


def test_workers_that_are_restarted_after_the_warning_hear_it_too(tmp_path):
    """Each worker receives it once, when it listens; one of them was warned and failed."""
    script = f"""
trap 'echo $RANK in $TORCHELASTIC_RESTART_COUNT heard; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ] && exit 3' USR1
echo $RANK in $TORCHELASTIC_RESTART_COUNT listens
until [ -e {tmp_path}/go ]; do sleep 0.05; done"""
    late = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || sleep 1.2\n"  # longer than ddrun takes to warn them
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=1", "--signal-before-end=USR1@600", "sh", "-c", late + script,
             env=clean_env(SLURM_JOB_END_TIME=str(int(time.time()) + 600))) as job:
        seen = ""
        while seen.count("in 1 heard") < 2:
            seen += job.line("heard")
        (tmp_path / "go").touch()
        assert job.wait() == 0, job.err
    lines = (seen + job.out).split("\n")
    assert lines.count("0 in 1 heard") == lines.count("1 in 1 heard") == lines.count("1 in 0 heard") == 1, lines


LISTENING = 'until [ -e "$READY.0" ] && [ -e "$READY.1" ]; do sleep 0.05; done\n'


@pytest.mark.parametrize("ids, commands, asked", [
    ({"SLURM_JOB_ID": "77"}, {"squeue": LISTENING + "echo 1:01"}, "squeue -h -o %L -j 77"),
    ({"PBS_JOBID": "77.head"}, {"qstat": LISTENING + 'echo "    Resource_List.walltime = 00:01:01"\n'
                                         'LC_ALL=C date "+    stime = %a %b %d %H:%M:%S %Y"'}, "qstat -f 77.head"),
    ({"LSB_JOBID": "77", "LSB_JOBINDEX": "3"}, {"bjobs": LISTENING + "echo 0:01 L"}, "bjobs -noheader -o time_left 77[3]"),
    ({"JOB_ID": "77", "SGE_ROOT": "/sge"}, {"qstat": LISTENING + 'echo "hard resource_list:         gpu=1,h_rt=61"'}, "qstat -j 77"),
    ({"OAR_JOB_ID": "77"}, {"oarstat": LISTENING + 'echo "    walltime = 0:1:1"\ndate "+    startTime = %Y-%m-%d %H:%M:%S"'}, "oarstat -f -j 77"),
    ({"FLUX_JOB_ID": "f77", "FLUX_URI": "local:///run"}, {"flux": LISTENING + "echo 61"}, "flux job timeleft"),
])
def test_the_scheduler_is_asked_and_term_ends_the_job(played, tmp_path, ids, commands, asked):
    job = hear("--signal-before-end=TERM@1m", "--nproc-per-node=1", env=played(**commands), READY=str(tmp_path / "ready"), **ids)
    assert job.p.returncode == 143 and heard(job) == [(0, "SIGTERM"), (1, "SIGTERM")], job.err
    assert some_line(job.err, "SIGTERM", "allocation")
    assert played.asked() == [asked]


@pytest.mark.parametrize("ids, commands", [
    ({}, {}), ({"SLURM_JOB_ID": "77"}, {"squeue": "echo UNLIMITED"}), ({"SLURM_JOB_ID": "77"}, {"squeue": "exit 1"}),
    ({"LSB_JOBID": "77"}, {"bjobs": "echo 0:01 E"}), ({"FLUX_JOB_ID": "f", "FLUX_URI": "x"}, {"flux": "echo 4294967295"})])
def test_an_end_that_nobody_knows_is_told(played, tmp_path, ids, commands):
    worker = f"until [ -e {tmp_path}/told ]; do sleep 0.05; done"
    with Job("--standalone", "--signal-before-end=USR1@60", "sh", "-c", worker, env={**played(**commands), **ids}) as job:
        said = job.errors("end of the allocation")
        (tmp_path / "told").touch()
        assert job.wait() == 0
        assert len((said + job.err).splitlines()) == 1, said + job.err


@pytest.mark.parametrize("text", ["USR1", "USR1@", "USR1@soon", "KILL@60", "@60", "USR9@60"])
def test_a_wrong_signal_before_the_end_is_refused(text):
    job = run(f"--signal-before-end={text}", "true")
    assert job.p.returncode == 2 and "USR1@120" in job.err


# --- requeue ---


def ends(how, *options, env, nodes=(0, 1)):
    """Run a job that Slurm's own signal to these nodes ends, or a person's."""
    from test_signals import Hearing, as_slurmstepd, guardian_and_agent
    with Hearing(*options, nodes=2, per_node=1, **env) as job:
        if how == "person":
            job.p.send_signal(signal.SIGTERM)
        else:
            for _ in as_slurmstepd(signal.SIGTERM, [guardian_and_agent(job, node)[0] for node in nodes]):
                job.p.wait(LIMIT)
        assert job.wait() == 143, job.err
        job.assert_nothing_left()
        return job


@pytest.mark.parametrize("option", ["preempt,timeout", "node-loss"])
@pytest.mark.parametrize("state, why", [("preempted", "preempted"), ("out of time", "time limit"), ("cancelled", None)])
def test_what_slurm_ended_is_started_again_unless_it_was_cancelled(played, state, why, option):
    show = SHOW.format(*STATES[state])
    env = played(scontrol=f'[ "$1" = requeue ] || echo "{show}"')
    job = ends("slurm", f"--requeue-on={option}", env={**env, "SLURM_JOB_ID": "77"})
    again = why is not None and option != "node-loss"
    assert played.asked() == ["scontrol show job -o 77"] + ["scontrol requeue 77"] * again
    assert some_line(job.err, "requeue", "job 77", f"{why}") == again


def test_a_job_that_ends_before_slurms_signal_has_reached_its_first_node_is_started_again(played):
    show = SHOW.format(*STATES["preempted"])
    env = played(scontrol=f'[ "$1" = requeue ] || echo "{show}"')
    job = ends("slurm", "--requeue-on=preempt", env={**env, "SLURM_JOB_ID": "77"}, nodes=(1,))
    assert played.asked() == ["scontrol show job -o 77", "scontrol requeue 77"], job.err


def test_a_job_that_is_ended_while_it_is_asked_for_is_not_called_refused(played):
    """Slurm kills all processes of the job at once, scontrol too."""
    show = SHOW.format(*STATES["preempted"])
    env = played(scontrol=f'[ "$1" != requeue ] || kill -9 $$; echo "{show}"')
    job = ends("slurm", "--requeue-on=preempt", env={**env, "SLURM_JOB_ID": "77"})
    assert some_line(job.err, "requeue", "job 77", "preempted") and "did not requeue" not in job.err


@pytest.mark.parametrize("state, again", [("running", False), ("cancelled", False), ("preempted", True)])
def test_slurm_says_whether_a_signal_of_another_process_ends_a_job_for_good(played, state, again):
    """The process that started the nodes may forward a signal to the leader before Slurm's own signal arrives."""
    show = SHOW.format(*STATES[state])
    env = played(scontrol=f'[ "$1" = requeue ] || echo "{show}"')
    ends("person", "--requeue-on=preempt,timeout,node-loss", env={**env, "SLURM_JOB_ID": "77"})
    assert played.asked() == ["scontrol show job -o 77"] + ["scontrol requeue 77"] * again


def test_a_signal_without_a_scheduler_asks_nobody_and_warns_of_nothing(played):
    job = ends("person", "--requeue-on=preempt,timeout", env=played(scontrol="exit 0"))
    assert played.asked() == [] and "--requeue-on" not in job.err


@pytest.mark.parametrize("code, ids, asked", [
    (3, {"SLURM_JOB_ID": "77"}, ["scontrol requeue 77"]),
    (3, {"PBS_JOBID": "77.head"}, ["qrerun 77.head"]),
    (0, {"SLURM_JOB_ID": "77"}, []),
    (93, {"SLURM_JOB_ID": "77"}, []),
])
def test_after_the_warning_the_workers_code_decides(played, code, ids, asked):
    end = str(int(time.time()) + 600)
    script = f"import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit({code}))\nwhile True:\n    time.sleep(0.05)"
    job = run("--standalone", "--signal-before-end=USR1@597", "--requeue-on=timeout", "--no-python", os.environ.get("DDRUN_PYTHON", "python3"), "-c", script,
              env={**played(scontrol="exit 0", qrerun="exit 0"), "SLURM_JOB_END_TIME": end, **ids})
    assert job.p.returncode == code, job.err
    assert played.asked() == asked


def test_a_failure_without_a_warning_starts_nothing_again(played):
    job = run("--standalone", "--requeue-on=preempt,timeout,node-loss", "sh", "-c", "exit 3", env={**played(scontrol="exit 0"), "SLURM_JOB_ID": "77"})
    assert job.p.returncode == 3 and played.asked() == []


@pytest.mark.parametrize("script, says", [("echo 'Only batch jobs are accepted'; exit 1", "Only batch jobs"), (None, "cannot run 'scontrol'")])
def test_a_lost_node_starts_the_job_again_and_a_refusal_is_told(played, script, says):
    from test_signals import Hearing, guardian_and_agent
    env = played(**({"scontrol": script} if script else {}))
    if not script:
        env["PATH"] = "/bin/does-not-exist"
    with Hearing("--requeue-on=node-loss", nodes=2, per_node=1, **{**env, "SLURM_JOB_ID": "77"}) as job:
        os.kill(guardian_and_agent(job, 1)[1], signal.SIGKILL)
        assert job.wait() != 0
        assert some_line(job.err, "requeue", "job 77", "lost", says)
    assert played.asked() == (["scontrol requeue 77"] if script else [])


def test_a_requeue_that_pbs_does_not_permit_is_told(played):
    """The exit code of OpenPBS 23.06's qrerun is the lowest byte of PBSE_PERM (15007), as if a signal had killed it."""
    env = played(qrerun="echo 'qrerun: Unauthorized Request  77.head' >&2; exit 159")
    job = run("--standalone", "--exit-rules=75=requeue", "sh", "-c", "exit 75", env={**env, "PBS_JOBID": "77.head"})
    assert job.p.returncode == 75 and played.asked() == ["qrerun 77.head"]
    assert some_line(job.err, "PBS did not requeue job 77.head (its exit code requests it (--exit-rules)): qrerun: Unauthorized Request"), job.err
    assert some_line(job.err, "tip: PBS permits qrerun to its managers and operators only"), job.err


def test_the_node_that_took_the_lost_ones_place_starts_the_job_again(played):
    """The leader's node is lost with the daemon, and too few nodes are left."""
    env = {**played(scontrol="exit 0"), "SLURM_JOB_ID": "77"}
    with Job("--simulate-nodes=3", "--max-restarts=1", "--requeue-on=node-loss", "--rejoin-timeout=1s", "--shutdown-timeout=1s",
             program("hear.py"), "USR1", env=env) as job:
        seen = ""
        while len(json_lines(seen)) < 3:
            seen += job.line("\n")
        os.kill(parent(job.processes("ddrund")[0]), signal.SIGKILL)
        assert job.wait() != 0
        assert some_line(job.err, "only 2 nodes are left; the job needs at least 3") or "without a majority" in job.err  # where the other came too late
        assert some_line(job.err, "requeue", "job 77", "lost")
        job.assert_nothing_left()
    assert played.asked() == ["scontrol requeue 77"]


def test_a_wrong_reason_is_refused():
    job = run("--requeue-on=always", "true")
    assert job.p.returncode == 2 and all(reason in job.err for reason in ("preempt", "timeout", "node-loss"))
