"""ddctl submit on a login node: the script that it makes, and what it refuses to submit. Stand-ins take the place of the scheduler's
commands; test_submit_schedulers.py has real ones."""

import json
import os
import select
import shutil
import signal
import subprocess

import pytest

from support import DDRUN, LIMIT, PYTHON, clean_env, some_line

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

DDCTL = os.path.join(os.path.dirname(DDRUN), "ddctl")
PARTITIONS = ("PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 State=UP TotalNodes=4\n"
              "PartitionName=short Default=NO MaxNodes=2 MaxTime=01:00:00 MinNodes=0 State=UP TotalNodes=4\n")
SHOW = "import json, sys\nprint(json.dumps(sys.argv[1:]))\n"
STRANGE = ["a b", "it's", '"q"', "x\ny\n", "", "$HOME", "`id`", "\\", "#", "*", "\u00e9", "@NODES@", "%j"]


class Login:
    """A directory with train.py, and stand-ins for Slurm's commands that record their arguments."""

    def __init__(self, place):
        self.place = str(place)
        self.bin = os.path.join(self.place, "bin")
        os.mkdir(self.bin)
        self.file("train.py", SHOW)
        self.command("scontrol", f"cat <<'X'\n{PARTITIONS}X\n")
        self.command("sbatch", f'echo "$*" >"{self.place}/called"; cat >"{self.place}/script"; echo "77;site"\n')

    def file(self, name, text):
        path = os.path.join(self.place, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def command(self, name, text):
        os.chmod(self.file(os.path.join("bin", name), "#!/bin/sh\n" + text), 0o755)

    def read(self, name):
        with open(os.path.join(self.place, name), encoding="utf-8") as f:
            return f.read()

    def submit(self, *args, path=None, **env):
        env = clean_env(PATH=f"{self.bin}:/usr/bin:/bin" if path is None else path, **env)
        return subprocess.run([DDCTL, "submit", *args], cwd=self.place, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=LIMIT, check=False)

    def refused(self, *args, **how):
        """Return the error messages; assert that nothing has been submitted."""
        done = self.submit(*args, **how)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert not os.path.exists(os.path.join(self.place, "called"))
        return done.stderr


@pytest.fixture
def login(tmp_path):
    return Login(tmp_path)


def test_stdout_has_the_job_id_alone(login):
    done = login.submit("--force", "--nodes=2", "--gpus-per-node=4", "--time=90m", "--partition=main", "--account=p7", "--name=run1", "--", DDRUN, "train.py")
    assert (done.returncode, done.stdout) == (0, "77\n"), done
    assert some_line(done.stderr, "submitted job 77", "run1-77.out")
    assert login.read("called") == "--parsable\n"
    assert login.read("script").splitlines() == [
        "#!/bin/bash", "#SBATCH --job-name=run1", "#SBATCH --nodes=2 --ntasks-per-node=1", "#SBATCH --gpus-per-node=4",
        "#SBATCH --time=01:30:00", "#SBATCH --partition=main", "#SBATCH --account=p7", "#SBATCH --output=run1-%j.out",
        f"exec {DDRUN} train.py"]


def test_dry_run_prints_the_script_and_submits_nothing(login):
    done = login.submit("--dry-run", "--force", "--cpus-per-node=8", "--log=logs.%j", DDRUN, "--nproc-per-node=2", "train.py")
    assert done.returncode == 0, done
    assert "#SBATCH --cpus-per-task=8\n" in done.stdout and "#SBATCH --output=logs.%j\n" in done.stdout
    assert done.stdout.endswith(f"\nexec {DDRUN} --nproc-per-node=2 train.py\n")
    assert not os.path.exists(os.path.join(login.place, "called"))


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_script_passes_arguments_unchanged(login, scheduler):
    done = login.submit("--dry-run", "--force", f"--scheduler={scheduler}", "--", DDRUN, "--standalone", "--nproc-per-node=1", "train.py", *STRANGE)
    assert done.returncode == 0, done
    ran = subprocess.run(["bash", "-s"], input=done.stdout, cwd="/", env=clean_env(PBS_JOBID="5.site"), capture_output=True, text=True,
                         timeout=LIMIT, check=False) if scheduler == "pbs" else \
        subprocess.run(["bash", "-s"], input=done.stdout, cwd=login.place, env=clean_env(), capture_output=True, text=True, timeout=LIMIT, check=False)
    out = login.read("train-5.site.out") if scheduler == "pbs" else ran.stdout
    assert ran.returncode == 0, (ran, out)
    assert json.loads(out.splitlines()[-1]) == STRANGE


def test_job_of_pbs_has_the_programs_of_the_shell_that_submits_and_not_its_secrets(login):
    done = login.submit("--dry-run", "--force", "--queue=workq", "--scheduler=pbs", "--nodes=3", "--gpus-per-node=2", "--", DDRUN, "train.py", VIRTUAL_ENV="/x y", API_TOKEN="secret")
    assert done.returncode == 0, done
    assert "#PBS -l select=3:ngpus=2:mpiprocs=1 -l place=scatter\n" in done.stdout and "#PBS -q workq\n" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("export "))
    assert f"PATH='{login.bin}:/usr/bin:/bin'" in line and " VIRTUAL_ENV='/x y'" in line, line
    assert "secret" not in done.stdout and "-V" not in done.stdout.split()
    assert done.stdout.splitlines()[-1].startswith("exec /")


def test_template_of_the_site_replaces_the_default(login):
    login.file("site.sh", "#!/bin/sh\n# mail me@site.org\n# account @ACCOUNT@\nmodule load cuda # for @NODES@\n@COMMAND@\n")
    for how in (("--template=site.sh", {}), (None, {"DDRUN_SUBMIT_TEMPLATE": "site.sh"})):
        done = login.submit("--dry-run", "--force", "--nodes=3", *([how[0]] if how[0] else []), "--", DDRUN, "train.py", **how[1])
        assert done.stdout == f"#!/bin/sh\n# mail me@site.org\nmodule load cuda # for 3\n{DDRUN} train.py\n", done
    login.file("site.sh", "#!/bin/sh\n# @NODE@\n@COMMAND@\n")
    err = login.refused("--force", "--template=site.sh", "--", DDRUN, "train.py")
    assert some_line(err, "error", "line 2", "@NODE@") and some_line(err, "tip", "@NODES@")


def test_value_cannot_leave_a_comment_of_the_template(login):
    login.file("site.sh", "#!/bin/sh\n# of @DIRECTORY@\nexec @COMMAND@\n")
    place = os.path.join(login.place, "a\ntouch called\n")
    os.mkdir(place)
    done = subprocess.run([DDCTL, "submit", "--dry-run", "--force", f"--template={login.place}/site.sh", "--", DDRUN, "../train.py"],
                          cwd=place, env=clean_env(PATH=f"{login.bin}:/usr/bin:/bin"), capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert some_line(done.stderr, "error", "line 2 of the template", "@DIRECTORY@", "line break")


def test_every_failed_check_is_reported_before_anything_is_submitted(login):
    err = login.refused("--nodes=3", "--time=2h", "--partition=short", "--log=missing/%j", "--", DDRUN, "nope.py")
    assert some_line(err, "error", "nope.py", "does not exist")
    assert some_line(err, "error", "missing", "No such file")
    assert some_line(err, "error", "partition 'short'", "at most 2 nodes", "--nodes=3")
    assert some_line(err, "error", "--time", "partition 'short'", "1:00:00")
    assert err.count("\n  tip: ") >= 3


@pytest.mark.parametrize("options, command, parts", [
    (["--partition=gone"], [DDRUN, "train.py"], ("partition 'gone'", "does not exist")),
    (["--nodes=5"], [DDRUN, "train.py"], ("partition 'main'", "at most 4 nodes", "--nodes=5")),
    (["--nodes=2"], [DDRUN, "--nnodes=4", "train.py"], ("--nnodes=4 contradicts --nodes=2",)),
    ([], [DDRUN, "--nproc-per-nod=2x", "train.py"], ("--nproc-per-nod",)),
    ([], [DDRUN, "--log-dir=train.py/x", "train.py"], ("--log-dir", "train.py/x")),
    ([], [DDRUN, "--report=gone/x", "train.py"], ("--report", "gone/x")),
    ([], [DDRUN], ("missing SCRIPT",)),
    ([], ["python3", "train.py"], ("must begin with ddrun, not with 'python3'",)),
    ([], ["/gone/ddrun", "train.py"], ("/gone/ddrun",)),
    (["--template=gone"], [DDRUN, "train.py"], ("--template", "gone")),
    ([], [], ("missing command",)),
    (["--time=30"], [DDRUN, "train.py"], ("--time", "'30'", "12h")),
    (["--name=a b"], [DDRUN, "train.py"], ("--name", "'a b'")),
    (["--account=x'"], [DDRUN, "train.py"], ("--account", "x'")),
    (["--name=\x1b[2J"], [DDRUN, "train.py"], ("--name", r"'\x1b[2J'")),
    (["--account=a\nb"], [DDRUN, "train.py"], ("--account", r"'a\x0ab'")),
    (["--log=\x9b2J"], [DDRUN, "train.py"], ("--log", r"'\xc2\x9b2J'")),
    (["--log=%x.out"], [DDRUN, "train.py"], ("--log", "%x.out")),
])
def test_what_would_fail_in_the_job_is_refused(login, options, command, parts):
    assert some_line(login.refused(*options, "--", *command), "error", *parts)


@pytest.mark.parametrize("typed, advice", [
    (["--time=99"], "99 minutes are --time=99m"), (["-t", "99"], "99 minutes are --time=99m"),
    (["--time=1:00"], "as hours and minutes --time=1:00:00, as minutes and seconds --time=0:1:00"),
    (["--gres=gpu:4"], "--gpus-per-node=N"), (["-n", "4"], "ddrun --nproc-per-node=N"),
    (["--cpus-per-task=4"], "--cpus-per-node=N"), (["--mem=4G"], "--template=FILE"), (["-l", "select=2"], "--nodes"),
])
def test_options_of_the_schedulers_get_the_equivalent_as_a_tip(login, typed, advice):
    err = login.refused(*typed, "--", DDRUN, "train.py")
    assert some_line(err, "tip", advice) and some_line(err, "error", typed[0].partition("=")[0]), err


def test_short_options_of_sbatch_are_accepted(login):
    done = login.submit("--dry-run", "--force", "-N2", "-p", "main", "-A", "p7", "-t", "1:30:00", "-J", "run1", "-o", "x-%j.out", "--",
                        DDRUN, "train.py")
    assert done.returncode == 0, done
    for line in ("--job-name=run1", "--nodes=2 --ntasks-per-node=1", "--time=01:30:00", "--partition=main", "--account=p7",
                 "--output=x-%j.out"):
        assert f"#SBATCH {line}\n" in done.stdout


def test_missing_interpreter_is_found_before_the_job(login):
    env = {"PYTHON_EXEC": os.path.join(login.place, "venv/bin/python")}
    err = login.refused("--", DDRUN, "train.py", **env)
    assert some_line(err, "error", "venv/bin/python")


def test_script_in_memory_of_the_login_node_is_refused(login):
    name = f"/dev/shm/ddrun-test-{os.getpid()}.py"
    with open(name, "w", encoding="utf-8") as f:
        f.write(SHOW)
    try:
        err = login.refused("--", DDRUN, name)
        assert some_line(err, "error", name, "tmpfs of this machine")
        done = login.submit("--force", "--", DDRUN, name)
        assert (done.returncode, done.stdout) == (0, "77\n") and some_line(done.stderr, "warning", name), done
    finally:
        os.unlink(name)


def test_without_a_scheduler_nothing_is_submitted(login):
    err = login.refused("--", DDRUN, "train.py", path="/nonexistent")
    assert some_line(err, "error", "no scheduler") and some_line(err, "tip", "--dry-run")
    done = login.submit("--scheduler=pbs", "--dry-run", "--force", "--", DDRUN, "train.py", path="/nonexistent")
    assert done.returncode == 0 and done.stdout.startswith("#!/bin/bash\n#PBS "), done


def test_dry_run_prints_the_script_while_the_scheduler_is_down(login):
    login.command("scontrol", "exit 1\n")
    err = login.refused("--", DDRUN, "train.py")
    assert some_line(err, "error", "'scontrol' failed") and some_line(err, "tip", "--force submits without")
    for forced in [], ["--force"]:
        done = login.submit("--dry-run", *forced, "--", DDRUN, "train.py")
        assert (done.returncode, "#SBATCH --nodes=1 " in done.stdout) == (0, True), done
        assert some_line(done.stderr, "warning", "'scontrol' failed") and "--force" not in done.stderr


@pytest.mark.parametrize("cpus, warned", [([], True), (["--cpus-per-node=8"], False)])
def test_gpus_without_cpus_of_pbs_are_warned_of(login, cpus, warned):
    done = login.submit("--dry-run", "--scheduler=pbs", "--nodes=2", "--gpus-per-node=4", *cpus, "--", DDRUN, "train.py")
    assert done.returncode == 0 and some_line(done.stderr, "warning", "--gpus-per-node=4 without --cpus-per-node") == warned, done


GRID_ENGINE = ("#!/bin/bash\n#$ -N @NAME@ -cwd -j y -o /dev/null\n#$ -pe mpi @SLOTS@\n#$ -l h_rt=@TIME@\n#$ -q @QUEUE@\n"
               "exec @COMMAND@ >@LOG@ 2>&1\n")


@pytest.fixture
def qsub_login(login):
    """A login node without Slurm, also if one is installed here."""
    os.unlink(os.path.join(login.bin, "sbatch"))
    for name in ("cat", "python3"):
        os.symlink(shutil.which(name), os.path.join(login.bin, name))
    return login


@pytest.mark.parametrize("mark", ["qconf", "SGE_ROOT"])
def test_qsub_of_grid_engine_is_not_taken_for_that_of_pbs(qsub_login, mark):
    login, path = qsub_login, qsub_login.bin
    login.command("qsub", f'echo "$*" >"{login.place}/called"; cat >"{login.place}/script"; echo 12\n')
    done = login.submit("--dry-run", "--force", "--", DDRUN, "train.py", path=path)
    assert done.returncode == 0 and "#PBS " in done.stdout, done
    if mark == "qconf":
        login.command("qconf", "echo all.q; echo gpu.q\n")
    env = {"SGE_ROOT": "/opt/sge"} if mark == "SGE_ROOT" else {}
    err = login.refused("--nodes=2", "--", DDRUN, "train.py", path=path, **env)
    assert err.splitlines() == [
        "ddctl submit: error: no built-in job script for Grid Engine, whose parallel environments and GPU resources differ between sites",
        "  tip: use --template=FILE with the site's '#$' lines (docs/submit.md)"]
    done = login.submit("--scheduler=pbs", "--dry-run", "--force", "--", DDRUN, "train.py", path=path, **env)
    assert done.returncode == 0 and "#PBS " in done.stdout, done


def test_template_is_submitted_to_grid_engine(qsub_login):
    login, path = qsub_login, qsub_login.bin
    login.file("site.sh", GRID_ENGINE)
    login.command("qsub", f'echo "$*" >"{login.place}/called"; cat >"{login.place}/script"; echo 12; [ $# = 1 ] || exit 9\n')
    login.command("qconf", '[ "$*" = -sql ] && echo all.q && echo gpu.q\n')
    err = login.refused("--template=site.sh", "--queue=gpu", "--", DDRUN, "train.py", path=path)
    assert some_line(err, "error", "queue 'gpu' does not exist") and some_line(err, "tip", "all.q, gpu.q")
    args = ("--template=site.sh", "--force", "--nodes=2", "--cpus-per-node=8", "--time=2h")
    done = login.submit(*args, "--", DDRUN, "train.py", path=path)
    assert (done.returncode, done.stdout, login.read("called")) == (0, "12\n", "-terse\n"), done
    assert some_line(done.stderr, "submitted job 12", "train-12.out")
    assert login.read("script").splitlines() == ["#!/bin/bash", "#$ -N train -cwd -j y -o /dev/null", "#$ -pe mpi 16", "#$ -l h_rt=02:00:00",
                                                 f'exec {DDRUN} train.py >train-"$JOB_ID".out 2>&1']
    done = login.submit(*args, "--follow", "--", DDRUN, "train.py", path=path)
    assert (done.returncode, login.read("called")) == (9, "-terse -sync y\n"), done


def test_log_of_grid_engine_is_followed_although_qsub_buffers_the_id(qsub_login):
    login = qsub_login
    login.file("site.sh", GRID_ENGINE)
    login.command("qconf", "echo all.q\n")
    login.command("qsub", f"""exec {PYTHON} -c 'import os, time
print(12)
while not os.path.exists("{login.place}/go"):
    time.sleep(0.05)
raise SystemExit(9)'
""")
    with subprocess.Popen([DDCTL, "submit", "--template=site.sh", "--force", "--follow", "--", DDRUN, "train.py"], cwd=login.place,
                          env=clean_env(PATH=login.bin), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert select.select([job.stdout], [], [], LIMIT)[0], "the id was not printed while the job runs"
        assert os.read(job.stdout.fileno(), 100) == b"12\n"
        login.file("train-12.out", "line 1\n")
        login.file("go", "")
        assert (job.stdout.read(), job.wait(LIMIT)) == (b"line 1\n", 9)


def test_failure_of_the_submit_command_is_reported(login):
    login.command("sbatch", "echo 'sbatch: error: no money' >&2; exit 3\n")
    done = login.submit("--force", "--", DDRUN, "train.py")
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "no money" in done.stderr and some_line(done.stderr, "sbatch failed", "exit code 3")


@pytest.mark.parametrize("sig", ["INT", "TERM", "HUP"])
def test_id_is_printed_although_a_signal_arrives_before_it(login, sig):
    login.command("sbatch", f"kill -{sig} $PPID; kill -{sig} $$; echo 77\n")
    done = login.submit("--force", "--", DDRUN, "train.py")
    assert done.stdout == "", done  # a signal to sbatch itself ends it
    login.command("sbatch", f"kill -{sig} $PPID; echo 77\n")
    done = login.submit("--force", "--", DDRUN, "train.py")
    assert done.stdout == "77\n" and some_line(done.stderr, "submitted job 77"), done
    assert done.returncode == -getattr(signal, f"SIG{sig}")


def test_log_is_followed_to_its_last_line(login):
    login.command("sbatch", f'[ "$*" = "--parsable --wait" ] && echo 77\nfor i in 1 2 3; do echo line $i >>"{login.place}/train-77.out"; done; exit 9\n')
    done = login.submit("--force", "--follow", "--", DDRUN, "train.py")
    assert (done.returncode, done.stdout) == (9, "77\nline 1\nline 2\nline 3\n"), done
    assert some_line(done.stderr, "job 77 ended", "exit code 9")
