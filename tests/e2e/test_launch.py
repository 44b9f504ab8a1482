"""ddrun starts itself on other nodes: by srun in a batch script, by ssh with real sshd, by a stand-in for PBS's pbs_tmrsh. Four
nodes in namespaces, each with a host name, network and /tmp of its own."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from support import DDRUN, HERE, built_with, told
from test_slurm import LIGHT, LIMIT, USUAL, Slurm, assert_trained, slurm, trained, until  # noqa: F401

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


# --- srun, in a batch script ---


def batch(slurm, text, *options, nodes=4):  # noqa: F811
    """Run text as a batch script; return its exit code, stdout and stderr."""
    slurm.file("batch", "#!/bin/sh\n" + text)
    with slurm.popen(["sbatch", "--wait", f"-N{nodes}", *options, "--output=out", "--error=err", "batch"]) as job:
        done = job.wait(LIMIT)
    with open(slurm.file("out"), encoding="utf-8") as out, open(slurm.file("err"), encoding="utf-8") as err:
        return type(done)(done.rc, out.read(), err.read())


def test_a_batch_script_needs_no_srun(slurm):  # noqa: F811
    trained(slurm, batch(slurm, f"{DDRUN} --nproc-per-node=2 {USUAL}\n"))


@pytest.mark.parametrize("options", [
    ("--ntasks-per-node=2",), ("--ntasks=8", "--cpus-per-task=2"), ("--ntasks-per-node=4", "--gpus-per-task=1"),
    ("--exclusive", "--gres=gpu:4"), ("--export=NONE",)])
def test_one_agent_a_node_has_all_that_the_job_has_there(slurm, options):  # noqa: F811
    """The agent has the whole allocation of the node, however many tasks and shares the script requested."""
    seen = "$(env -u OMP_NUM_THREADS nproc) $CUDA_VISIBLE_DEVICES $FROM_SCRIPT"
    script = (f"FROM_SCRIPT='a b' && export FROM_SCRIPT\necho {seen} > {slurm.file('seen')}\n"
              f"{DDRUN} --nproc-per-node=2 --bind=none sh -c 'echo $RANK/$WORLD_SIZE {seen}'\n")
    done = batch(slurm, script, *options)
    assert done.rc == 0, done.err
    with open(slurm.file("seen"), encoding="utf-8") as f:
        here = f.read().strip()
    assert sorted(done.out.splitlines()) == [f"{r}/8 {here}" for r in range(8)]
    assert here.endswith("0,1,2,3 a b") or not any("gpu" in option for option in options)


def test_a_failing_batch_job_has_the_workers_code_and_no_step_is_left(slurm):  # noqa: F811
    done = batch(slurm, f"{DDRUN} --nproc-per-node=2 sh -c '[ $RANK = 5 ] && exit 7; sleep 600'\n"
                        "echo code $?\n"
                        "i=0; while squeue -h -s -j $SLURM_JOB_ID -o %i | grep -v batch && [ $i -lt 1000 ]; do\n"
                        "i=$((i + 1)); sleep 0.1; done >/dev/null; echo tries left $((i < 1000))\n")
    assert done.out == "code 7\ntries left 1\n"


def test_salloc_needs_no_srun_either(slurm):  # noqa: F811
    with slurm.popen(["salloc", "-N4", DDRUN, "--nproc-per-node=2", LIGHT]) as job:
        trained(slurm, job.wait(LIMIT))


def test_nothing_is_started_where_that_is_said(slurm):  # noqa: F811
    done = batch(slurm, f"{DDRUN} --launcher=none --nproc-per-node=2 true\necho $?\n")
    assert done.out == "2\n" and "srun --ntasks=4 --ntasks-per-node=1 ddrun" in done.err


@pytest.mark.parametrize("options", ["--mem=100M", "--launcher=none", "--rdzv-endpoint=node1:29400"])
def test_the_srun_of_a_tip_starts_one_agent_a_node_whatever_the_script_requests(slurm, options):  # noqa: F811
    """The program of the wrong command ends at once; the tip is run in the same script."""
    done = batch(slurm, f"{DDRUN} {options} --nproc-per-node=1 --join-timeout=1s true 2>err1\n"
                        "srun=$(sed -n 's/.*\\(srun -.*\\)ddrun \\.\\.\\..*/\\1/p' err1 | sed 's/OPTION/--mem=100M/')\n"
                        f"eval \"$srun\" {DDRUN} --nproc-per-node=2 sh -c \"'echo \\$RANK of \\$WORLD_SIZE'\"\n",
                 "--ntasks-per-node=2", nodes=2)
    assert sorted(done.out.splitlines()) == [f"{rank} of 4" for rank in range(4)], done.out + done.err


@pytest.mark.parametrize("where", ["sbatch", "salloc"])
def test_a_dry_run_where_ddrun_would_start_all_nodes_describes_that(slurm, where):  # noqa: F811
    args = ["--dry-run", "--nproc-per-node=2", "true"]
    if where == "sbatch":
        done = batch(slurm, f"{DDRUN} {' '.join(args)}\necho $?\n")
        assert done.out.endswith("\n0\n"), done.err
    else:
        with slurm.popen(["salloc", "-N4", DDRUN, *args]) as job:
            done = job.wait(LIMIT)
        assert done.rc == 0, done.err
    first, rest = done.out.split("\n", 1)
    assert "srun" in first and "4 nodes" in first and "node[1-4]" in first
    assert "ranks 0-1 of 8" in rest and "RANK=1" in rest and "error" not in done.err


def test_the_first_ctrl_c_under_salloc_stops_the_workers(slurm):  # noqa: F811
    """By default srun requires a second Ctrl-C within a second."""
    script = "trap 'echo caught; exit 0' INT TERM; echo ready; while :; do sleep 0.1; done"
    with slurm.popen(["salloc", "-Q", "-N2", DDRUN, "--nproc-per-node=1", "sh", "-c", script], tty=True) as job:
        until(lambda: job.out.count("ready") == 2, LIMIT, "both workers are ready")
        job.type(b"\x03")
        done = job.wait(LIMIT)
    assert done.out.count("caught") == 2 and "one more within" not in done.err and "Job step aborted" not in done.err, done.err


def test_a_step_with_several_tasks_a_node_is_refused_once(slurm):  # noqa: F811
    done = slurm.run("--nproc-per-node=2", "true", srun=("-N4", "--ntasks-per-node=2"))
    errors = [line for line in done.err.splitlines() if line.startswith("ddrun") and "error" in line]
    assert done.rc == 2 and len(errors) == 1 and "8 copies" in errors[0], done.err


JOBS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "contrib", "jobs")


@pytest.mark.parametrize("name", ["slurm.sbatch", "slurm-elastic.sbatch"])
def test_the_scripts_to_copy_work_as_they_are(slurm, name):  # noqa: F811
    with open(os.path.join(JOBS, name), encoding="utf-8") as f:
        slurm.file("script", f.read())
    path = os.path.dirname(DDRUN) + ":/usr/bin:/bin"
    with slurm.popen(["sbatch", "--wait", "-N4", "--output=out", "--time=10", "script", "sh", "-c",
                      "echo $RANK/$WORLD_SIZE"], env={"PATH": path}) as job:
        done = job.wait(LIMIT)
    with open(slurm.file("out"), encoding="utf-8") as out:
        text = out.read()
    assert done.rc == 0, text
    lines = [line for line in text.splitlines() if "lacks support for cpu binding" not in line]  # true of this cluster
    assert sorted(lines) == sorted(f"{r}/16" for r in range(16))


# --- ssh ---


class Ssh:
    """An sshd on each node; the user's ssh configuration sets port, key and known hosts."""

    def __init__(self, slurm):  # noqa: F811
        self.slurm, self.cluster, self.user = slurm, slurm.cluster, slurm.user
        self.names = self.cluster.names
        self.home = self.cluster.users[self.user][1]
        self.place = self.cluster.directory("ssh")  # owned by root, which sshd requires of its keys
        os.chmod(self.place, 0o755)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.place}/{key}"], check=True)
        self.hosts = ",".join(self.names)
        self._sshd_config()
        for name in self.names:
            self._configure_user(name)
            self.start(name)

    def _write(self, path, text, uid=0, mode=0o600):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chown(path, uid, uid)
        os.chmod(path, mode)

    def _sshd_config(self):
        self._write(f"{self.place}/sshd_config", f"""Port 2222
HostKey {self.place}/host
AuthorizedKeysFile {self.place}/user.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
MaxStartups 100
""")

    def _configure_user(self, name):
        folder = self.cluster.machines[name].path(self.home + "/.ssh")
        uid = self.cluster.users[self.user][0]
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, uid, uid)
        with open(f"{self.place}/host.pub", encoding="utf-8") as f:
            key = " ".join(f.read().split()[:2])
        self._write(folder + "/known_hosts", "".join(f"[{n}]:2222 {key}\n" for n in self.names), uid)
        with open(f"{self.place}/user", encoding="utf-8") as f:
            self._write(folder + "/id_ed25519", f.read(), uid)
        self._write(folder + "/config", "Host *\n    Port 2222\n", uid)

    def start(self, name):
        machine = self.cluster.machines[name]
        os.makedirs(machine.path("/run/sshd"), exist_ok=True)
        machine.daemon([SSHD, "-D", "-e", "-f", f"{self.place}/sshd_config"], "sshd")
        until(lambda: any(":2222" in str(s) for s in machine.sockets()), LIMIT, lambda: f"sshd of {name}: {machine.log('sshd')}")

    def daemon_of(self, name):
        return [p for p in self.cluster.processes(name) if p.cmdline.startswith("sshd:") and "listener" in p.cmdline][0]

    def stop(self, name):
        assert self.cluster.kill(name, self.daemon_of(name).pid)
        until(lambda: not any(":2222" in str(s) for s in self.cluster.machines[name].sockets()), LIMIT, f"sshd of {name} is gone")

    def start_job(self, *args, node=None, hosts=None, **how):
        return self.slurm.popen([DDRUN, "--launcher=ssh", f"--hosts={hosts or self.hosts}", "--rdzv-timeout=10m", *args],
                                node=node or self.names[0], **how)

    def run(self, *args, **how):
        with self.start_job(*args, **how) as job:
            return job.wait(LIMIT)


@pytest.fixture
def ssh(cluster):
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd or ssh here (Debian packages openssh-server, openssh-client)")
    made = Ssh(Slurm(cluster))
    before = cluster.snapshot()
    yield made
    try:
        cluster.assert_nothing_left(before)
    finally:
        for name in made.names:
            for process in cluster.processes(name):
                if process.cmdline.startswith("sshd:"):
                    cluster.kill(name, process.pid)


def test_one_command_trains_on_all_hosts(ssh):
    done = ssh.run("--nproc-per-node=2", USUAL)
    assert_trained(done, ssh.names, ssh.cluster.address(ssh.names[0]))


def test_the_starting_host_may_be_any_of_them_or_none(ssh):
    for node, hosts in (("node3", "node1,node2,node3"), ("node4", "node[1-2]")):
        done = ssh.run("--nproc-per-node=1", "--launch-command=ssh -p 2222 -o BatchMode=yes", "sh", "-c",
                       "echo $RANK $(hostname)", node=node, hosts=hosts)
        assert done.rc == 0, done.err
        names = ["node1", "node2", "node3"] if node == "node3" else ["node1", "node2"]
        assert sorted(done.out.splitlines()) == [f"{r} {name}" for r, name in enumerate(names)]


@pytest.mark.skipif(not built_with("TOML"), reason="configure has not found toml++ (Debian: libtomlplusplus-dev)")
def test_started_nodes_get_the_values_of_the_first_ones_files(ssh):
    """Each has a /tmp of its own; the others have a file there that would be refused."""
    place = f"/tmp/{os.path.basename(ssh.place)}-config"
    folders = [ssh.cluster.machines[name].path(place) for name in ssh.names]
    for i, folder in enumerate(folders):
        os.makedirs(folder)
        ssh._write(f"{folder}/ddrun.toml", "wrong = 1\n" if i > 0 else
                   'nproc-per-node = 2\nenv = ["A=file", "B=file"]\n[environment]\nB = "default"\nC = "x y"\n', mode=0o644)
    env = {"XDG_CONFIG_HOME": place}
    try:
        done = ssh.run("--env=D=user", "sh", "-c", "echo $RANK $WORLD_SIZE $A $B $C $D", env=env)
        other = ssh.run("sh", "-c", "echo $RANK $WORLD_SIZE $A $B $C", env=env)
    finally:
        for folder in folders:
            shutil.rmtree(folder)
    assert done.rc == 0 and other.rc == 0, done.err + other.err
    assert sorted(done.out.splitlines()) == [f"{rank} 8 default x y user" for rank in range(8)]
    assert sorted(other.out.splitlines()) == [f"{rank} 8 file file x y" for rank in range(8)]


def test_workers_find_the_shells_environment_folder_and_limits(ssh):
    """No variable appears in an argument list, which other users could read."""
    odd = "two words, 'quotes' \"double\" \\ $HOME\nand a line"
    show = ("import os, resource, json; print(json.dumps([int(os.environ['RANK']), os.environ['ODD'], os.environ.get('EMPTY'),"
            " os.getcwd(), os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.environ['PWD'],"
            " 'SSH_CONNECTION' in os.environ, os.environ.get('DDRUN_KEY')]) + '\\n', end='')\n"
            "import glob\n"
            "for f in glob.glob('/proc/[0-9]*/cmdline'):\n"
            "    try: assert b'two words' not in open(f, 'rb').read(), f\n"
            "    except FileNotFoundError: pass\n")
    program = ssh.slurm.file("show.py", show)
    shell = f"umask 027; ulimit -Sn 512; exec {DDRUN} --launcher=ssh --hosts={ssh.hosts} --nproc-per-node=1 {program}"
    with ssh.slurm.popen(["sh", "-c", shell], node="node2", env={"ODD": odd, "EMPTY": ""}) as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.out + done.err
    assert sorted(map(json.loads, done.out.splitlines())) == [[r, odd, "", ssh.slurm.place, 0o027, 512, ssh.slurm.place, False, None]
                                                              for r in range(4)]


def test_lines_of_all_nodes_come_whole(ssh):
    line = "x" * 3000
    done = ssh.run("--nproc-per-node=2", "sh", "-c", f"for i in $(seq 300); do echo $RANK {line}; done; echo $RANK err >&2")
    assert done.rc == 0, done.err
    lines = done.out.splitlines()
    assert sorted(lines) == sorted(f"{r} {line}" for r in range(8) for _ in range(300))
    assert sorted(told(done.err).splitlines()) == [f"{r} err" for r in range(8)]


def test_the_exit_code_and_the_words_of_a_worker_elsewhere(ssh):
    done = ssh.run("--nproc-per-node=2", "sh", "-c", "[ $RANK = 5 ] && { echo oh no >&2; exit 7; }; sleep 600")
    assert done.rc == 7
    assert "rank 5 on node3 failed" in done.err and "oh no" in done.err


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_one_command_ends_all(ssh, sig):
    begun = ssh.slurm.file("begun")
    with ssh.start_job("--nproc-per-node=1", "--shutdown-timeout=3s", "sh", "-c",
                       f"touch {begun}.$RANK; sleep 600") as job:
        until(lambda: ssh.slurm.exists("begun.*", 4), LIMIT, lambda: job.err)
        job.signal(sig)
        assert job.wait(LIMIT).rc == 128 + sig


def test_ctrl_c_ends_all(ssh):
    begun = ssh.slurm.file("begun")
    with ssh.start_job("--nproc-per-node=1", "--shutdown-timeout=3s", "sh", "-c",
                       f"touch {begun}.$RANK; sleep 600", tty=True) as job:
        until(lambda: ssh.slurm.exists("begun.*", 4), LIMIT, lambda: job.err)
        job.type(b"\x03")
        assert job.wait(LIMIT).rc == 130


@pytest.mark.parametrize("node", ["node1", "node4"])
def test_killing_the_starting_process_leaves_nothing(ssh, node):
    """The fixture checks all nodes; node4 runs no agent."""
    begun = ssh.slurm.file("begun")
    with ssh.start_job("--nproc-per-node=1", "sh", "-c", f"touch {begun}.$RANK; sleep 600", node=node,
                       hosts="node[1-3]") as job:
        until(lambda: ssh.slurm.exists("begun.*", 3), LIMIT, lambda: job.err)
        job.signal(signal.SIGKILL)
        assert job.wait(LIMIT).rc != 0


def test_a_host_without_sshd_is_named_and_ends_the_start(ssh):
    ssh.stop("node3")
    done = ssh.run("--nproc-per-node=1", "true")
    assert done.rc == 1
    assert "cannot start ddrun on node3: ssh exited with code 255" in done.err and "Connection refused" in done.err
    assert "tip: try 'ssh node3 true'" in done.err


def test_a_job_with_enough_hosts_goes_on_without_one(ssh):
    ssh.stop("node3")
    go = ssh.slurm.file("go")
    with ssh.start_job("--nproc-per-node=1", "--nnodes=3:4", "--last-call=1s", "sh", "-c",
                       f"echo $RANK/$WORLD_SIZE; until [ -e {go} ]; do sleep 0.05; done") as job:
        job.wait_for("cannot start ddrun on node3", LIMIT)  # the others may have begun before
        ssh.slurm.file("go", "")
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err
    assert sorted(done.out.splitlines()) == ["0/3", "1/3", "2/3"]
    assert "cannot start ddrun on node3" in done.err and "without it" in done.err


def test_a_host_that_hangs_is_named(ssh):
    ssh.stop("node4")
    with ssh.cluster.squat("node4", [2222], "silent"):
        done = ssh.run("--nproc-per-node=1", "--rdzv-timeout=3s", "true")
    assert done.rc == 1
    assert re.search(r"timed out after .* waiting for node\S*4", done.err), done.err  # others may be late, too


def test_a_host_that_is_not_in_the_network(ssh):
    done = ssh.run("--nproc-per-node=1", "true", hosts="node1,nowhere")
    assert done.rc == 1 and "cannot start ddrun on nowhere" in done.err


def test_a_worker_that_fails_is_started_again_under_ssh(ssh):
    done = ssh.run("--nproc-per-node=1", "--max-restarts=1", "sh", "-c",
                   "echo $RANK $TORCHELASTIC_RESTART_COUNT; [ $RANK$TORCHELASTIC_RESTART_COUNT != 20 ] || exit 3")
    assert done.rc == 0, done.err
    assert {f"{r} 1" for r in range(4)} <= set(done.out.splitlines())


def starters(ssh, node, host):
    """Return the pids of the ssh processes on `node` that have started `host`."""
    return [p.pid for p in ssh.cluster.processes(node) if re.match(rf"\S*ssh .* {host} exec ", p.cmdline)]


@pytest.mark.parametrize("how", ["ctrl-c", "kill", "kill-starter"])
def test_nodes_that_start_nodes_end_with_the_rest(ssh, how):
    """node1 starts node2 and node3, and node3 starts node4. The fixture checks that nothing is left on any node."""
    begun = ssh.slurm.file("begun")
    with ssh.start_job("--nproc-per-node=1", "--launch-fanout=2", "--shutdown-timeout=3s", "sh", "-c",
                       f"touch {begun}.$RANK; sleep 600", tty=how == "ctrl-c") as job:
        until(lambda: ssh.slurm.exists("begun.*", 4), LIMIT, lambda: job.err)
        assert starters(ssh, "node3", "node4") and not starters(ssh, "node1", "node4")
        if how == "ctrl-c":
            job.type(b"\x03")
            assert job.wait(LIMIT).rc == 130
            return
        if how == "kill":
            job.signal(signal.SIGKILL)
        else:
            assert ssh.cluster.kill("node3", starters(ssh, "node3", "node4")[0])
        assert job.wait(LIMIT).rc != 0


def test_what_a_host_without_sshd_was_to_start_is_started_all_the_same(ssh):
    ssh.stop("node3")
    line = "x" * 3000
    done = ssh.run("--nproc-per-node=1", "--launch-fanout=2", "--nnodes=3:4", "--last-call=1s", "sh", "-c",
                   f"for i in $(seq 100); do echo $(hostname) {line}; done")
    assert done.rc == 0, done.err
    assert sorted(done.out.splitlines()) == sorted(f"{name} {line}" for name in ("node1", "node2", "node4") for _ in range(100))
    assert "cannot start ddrun on node3" in done.err and "Connection refused" in done.err


# --- PBS: a stand-in for its starter ---


@pytest.fixture
def pbs(ssh):
    """Return start(*args), which runs ddrun with the variables of a job script on node1, of a job on node1 to node3."""
    names = ssh.names[:3]
    folder = os.path.join(HERE, "programs")
    nodefile = ssh.slurm.file("nodefile", "".join(f"{name}\n" for name in names for _ in range(2)))
    env = {"PATH": f"{folder}:/usr/bin:/bin", "PBS_JOBID": "77.server", "PBS_NODEFILE": nodefile, "PBS_NODENUM": "0",
           "PBS_JOBCOOKIE": "0123456789ABCDEF0123456789ABCDEF", "PBS_TASKNUM": "1", "PBS_ENVIRONMENT": "PBS_BATCH",
           "PBS_HOSTS": " ".join(names), "PBS_OUT": ssh.slurm.file("job.out"), "PBS_ERR": ssh.slurm.file("job.err"),
           "STAND_IN_SSH": "ssh", "FROM_SCRIPT": "a module's path", "NCPUS": "1", "OMP_NUM_THREADS": "1"}
    ssh.slurm.env.pop("SLURM_CONF", None)

    def start(*args, node="node1", command=DDRUN, **more):
        return ssh.slurm.popen([command, *args], node=node, env={**env, **more})

    def output():
        return "".join(open(env[name], encoding="utf-8").read() for name in ("PBS_OUT", "PBS_ERR") if os.path.exists(env[name]))

    start.output = output
    return start


def test_a_pbs_script_starts_its_job_on_all_hosts(pbs, ssh):
    with pbs("--nproc-per-node=2", "sh", "-c", "echo $RANK/$WORLD_SIZE $(hostname) $FROM_SCRIPT $PWD $PBS_NODENUM") as job:
        done = job.wait(LIMIT)
    assert done.rc == 0, done.err + pbs.output()
    assert pbs.output() == ""  # ddrun's own stdout has all of it
    lines = sorted(done.out.splitlines())
    assert lines == [f"{r}/6 node{r // 2 + 1} a module's path {ssh.slurm.place} {r // 2}" for r in range(6)]


def test_a_worker_that_fails_on_another_host_of_a_pbs_job(pbs):
    with pbs("--nproc-per-node=1", "sh", "-c", "[ $RANK = 2 ] && { echo out; printf 'last words' >&2; exit 9; }; sleep 600") as job:
        done = job.wait(LIMIT)
    assert done.out == "out\n" and "last words" in done.err and pbs.output() == ""
    assert done.rc == 9 and "rank 2 on node3 failed" in done.err


def test_qdel_reaches_the_other_hosts_of_a_pbs_job(pbs, ssh):
    """PBS signals only the processes on the first host."""
    begun = ssh.slurm.file("begun")
    with pbs("--nproc-per-node=1", "--shutdown-timeout=3s", "sh", "-c",
             f"trap 'echo told $RANK; exit 0' TERM; touch {begun}.$RANK; while :; do sleep 0.1; done") as job:
        until(lambda: ssh.slurm.exists("begun.*", 3), LIMIT, lambda: job.err + pbs.output())
        job.signal(signal.SIGTERM)
        done = job.wait(LIMIT)
    assert done.rc == 143
    assert sorted(done.out.splitlines()) == ["told 0", "told 1", "told 2"]


# --- LSF, Grid Engine, OAR: stand-ins with the losses that the manuals state ---

KEEPS = "environment=$(export -p); exec ssh \"$host\" \"$environment; cd; $* </dev/null\"\n"  # as blaunch and qrsh -V
SYSTEMS = {
    "lsf": ("blaunch", "host=$1; shift\n" + KEEPS, {"LSB_JOBID": "5", "LSB_DJOB_HOSTFILE": "{nodefile}"}),
    "sge": ("qrsh", "shift 3; host=$1; shift\n" + KEEPS, {"JOB_ID": "5", "SGE_ROOT": "/x", "PE_HOSTFILE": "{nodefile}"}),
    "oar": ("oarsh", 'exec ssh "$@"\n', {"OAR_JOB_ID": "5", "OAR_NODEFILE": "{nodefile}"}),
    "cobalt": (None, None, {"COBALT_JOBID": "5", "COBALT_NODEFILE": "{nodefile}"}),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_script_of_another_system_starts_its_job_on_all_hosts(ssh, system):
    starter, text, variables = SYSTEMS[system]
    nodefile = ssh.slurm.file("nodefile", "".join(f"{name}\n" for name in ssh.names[:3] for _ in range(2)))
    os.makedirs(ssh.slurm.file("bin"))
    os.chmod(ssh.slurm.file("bin"), 0o755)
    if starter:
        ssh.slurm.file("bin/" + starter, "#!/bin/bash\n" + text)
    env = {name: value.format(nodefile=nodefile) for name, value in variables.items()}
    env |= {"PATH": ssh.slurm.file("bin") + ":/usr/bin:/bin", "FROM_SCRIPT": "a module's path"}
    with ssh.slurm.popen([DDRUN, "--nproc-per-node=2", "sh", "-c",
                          "echo $RANK/$WORLD_SIZE $(hostname) $FROM_SCRIPT $PWD; exit $((RANK == 5 ? 7 : 0))"],
                         node="node1", env=env) as job:
        done = job.wait(LIMIT)
    assert done.rc == 7, done.err
    lines = set(done.out.splitlines())
    assert lines <= {f"{r}/6 node{r // 2 + 1} a module's path {ssh.slurm.place}" for r in range(6)}
    assert f"5/6 node3 a module's path {ssh.slurm.place}" in lines, done.err
