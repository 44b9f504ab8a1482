"""Options from ddrun.toml: of the site, of the user, of the current directory."""

import os
import pathlib
import re
import socket
import struct
import subprocess
import tempfile

import pytest

from support import ATTACKER, BUILD, DDRUN, LIMIT, VICTIM, as_two_users, as_user, built_with, clean_env, run

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not built_with("TOML"), reason="configure has not found toml++ (Debian: libtomlplusplus-dev)")]


class Files:
    """A directory to run in, and the user's directory of settings."""

    def __init__(self, top):
        self.here, self.config = top / "here", top / "config"
        self.here.mkdir()
        self.config.mkdir()

    def project(self, text):
        (self.here / "ddrun.toml").write_text(text)

    def user(self, text):
        (self.config / "ddrun.toml").write_text(text)

    def env(self, **extra):
        return clean_env(XDG_CONFIG_HOME=str(self.config), **extra)

    def run(self, *args, **env):
        return run(*args, cwd=self.here, env=self.env(**env))

    def shown(self, *args, before=(), **env):
        """{option: (value, source)} of --show-config; of a repeated option the last one."""
        done = subprocess.run([*before, DDRUN, "--show-config", *args], cwd=self.here, env=self.env(**env), capture_output=True,
                              text=True, timeout=LIMIT, check=True)
        assert done.stderr == ""
        return {row[0]: tuple(row[1:]) for row in (line.split("\t") for line in done.stdout.splitlines())}


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def site_file():
    """Where this build looks for the site's."""
    with open(os.path.join(BUILD, "Makefile"), encoding="utf-8") as f:
        words = dict(re.findall(r"^(prefix|sysconfdir) = (.*)$", f.read(), re.M))
    return words["sysconfdir"].replace("${prefix}", words["prefix"]) + "/ddrun/ddrun.toml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a test a site file of its own")
def test_each_place_overrides_the_one_before(files, tmp_path):
    site = tmp_path / "site.toml"
    names = ["timeout", "log-level", "rdzv-timeout", "nproc-per-node", "max-restarts", "slurm-env"]
    values = [["1h", "info", "1s", "1", "1", "keep"], ["2h", "debug", "2s", "2", "2"], ["3h", "error", "3s", "3"], ["4h", "warning", "4s"],
              ["5h", "notice"]]
    texts = ["".join(f'{name} = "{value}"\n' for name, value in zip(names, row)) for row in values]
    site.write_text(texts[0])
    files.user(texts[1])
    files.project(texts[2])
    variables = {f"DDRUN_{name.upper().replace('-', '_')}": value for name, value in zip(names, values[3])}
    options = [f"--{name}={value}" for name, value in zip(names, values[4])]
    path = site_file()
    above = os.path.dirname(os.path.dirname(path))  # in a mount namespace: this machine has no such file afterwards
    before = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {above} && mkdir {above}/ddrun && cp {site} {path} && "
              'exec "$@"', "sh"]
    shown = files.shown(*options, "true", before=before, **variables)
    assert shown["timeout"] == ("5h", "command line") and shown["log-level"] == ("notice", "command line")
    assert shown["rdzv-timeout"] == ("4s", "environment DDRUN_RDZV_TIMEOUT")
    assert shown["nproc-per-node"] == ("3", "./ddrun.toml:4")
    assert shown["max-restarts"] == ("2", f"{files.config}/ddrun.toml:5")
    assert shown["slurm-env"] == ("keep", f"{path}:6")
    assert shown["label"] == ("no", "default")


def test_a_job_runs_with_the_values_of_files(files):
    files.user('simulate-nodes = 2\n[environment]\nFROM_FILE = "a b"\nTAKEN = 1\n')
    files.project('nproc-per-node = 2\nlabel = true\n')
    job = files.run("sh", "-c", "echo $FROM_FILE $TAKEN", TAKEN="mine")
    assert job.p.returncode == 0, job.err
    assert sorted(job.out.splitlines()) == [f"[{rank}]: a b mine" for rank in range(4)]


def test_a_step_gets_the_values_of_the_script(files):
    srun = files.here / "srun"
    srun.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    srun.chmod(0o755)
    files.user('log-dir = "a b"\nrole = "no"\n')
    files.project('max-restarts = 3\n')
    job = files.run("--launcher=srun", f"--launch-command={srun}", "true", DDRUN_ROLE="yes", SLURM_JOB_ID="7",
                    SLURM_JOB_NODELIST=f"{socket.gethostname()},198.51.100.1", SLURM_NNODES="2", SLURM_NTASKS="2")  # RFC 5737
    assert "<--no-config><--log-dir=a b><--max-restarts=3>" in job.out and "role" not in job.out, job.out + job.err


def test_sections_apply_in_their_partition(files):
    files.project('max-restarts = 1\n[partition.gpu]\nmax-restarts = 2\n[partition.gpu.environment]\nNCCL_DEBUG = "INFO"\n'
                  '[queue.long]\nmax-restarts = "4/1h"\n')
    assert files.shown("true")["max-restarts"] == ("1", "./ddrun.toml:1")
    in_partition = files.shown("true", SLURM_JOB_PARTITION="gpu")
    assert in_partition["max-restarts"] == ("2", "./ddrun.toml:3") and in_partition["env"] == ("NCCL_DEBUG=INFO", "./ddrun.toml:5")
    assert files.shown("true", PBS_QUEUE="long")["max-restarts"] == ("4/1h", "./ddrun.toml:7")


@pytest.mark.parametrize("text, parts", [
    ("label = true\nnproc-pre-node = 2\n", ["./ddrun.toml:2:", "nproc-pre-node", "'nproc-per-node'"]),
    ("[partition.other]\nnproc-pre-node = 2\n", ["./ddrun.toml:2:", "nproc-pre-node"]),
    ("\nnproc-per-node = 'many'\n", ["./ddrun.toml:2:", "nproc-per-node", "'many'"]),
    ("label = 'perhaps'\n", ["./ddrun.toml:1:", "label"]),
    ("bind = 'x'\n", ["./ddrun.toml:1:", "bind", "auto or none"]),
    ("[partitions.gpu]\nlabel = true\n", ["./ddrun.toml:2:", "partitions"]),
    ("label = true\nlabel = false\n", ["./ddrun.toml:2:", "label"]),
    ("label = \n", ["./ddrun.toml:1:"]),
    ("log-level = 1979-05-27\n", ["./ddrun.toml:1:", "log-level"]),
    ("wrap = ['all:touch ran']\n", ["./ddrun.toml:1:", "wrap", "project file"]),
    ("[environment]\nLD_PRELOAD = 'x.so'\n", ["./ddrun.toml:2:", "LD_PRELOAD", "project file"]),
    ("[environment]\nNCCL_DEBUG_FILE = 'victim'\n", ["./ddrun.toml:2:", "NCCL_DEBUG_FILE", "project file"]),
    ("[environment]\nMASTER_ADDR = '203.0.113.1'\n", ["./ddrun.toml:2:", "MASTER_ADDR", "sets this variable for each worker"]),
    ("[environment]\nDDRUN_WRAP = 'x'\n", ["./ddrun.toml:2:", "DDRUN_WRAP"]),
    ("role = '" + 70000 * "x" + "'\n", ["./ddrun.toml:1:", "64 KiB"]),
    (2000 * "[" + "\n", ["./ddrun.toml: ", "the TOML parser failed"]),
    ("label = true\n" + 16000 * "a." + "a = 1\n", ["./ddrun.toml:2: the key has more than 17 parts"]),
    ("label = true\n[" + 32000 * "a." + "a]\n", ["./ddrun.toml:2: the key has more than 17 parts"]),
    ("a = { b = 1, " + 16000 * "a . " + "a = 1 }\n", ["./ddrun.toml:1: the key has more than 17 parts"]),
    ("label = true\na.a.a.a.a.a.a.a = 1\n", ["./ddrun.toml:2: unknown section 'a.a.a.a'"]),
    ('a = { b = """\n\' """, ' + 16000 * "c." + "c = 1 }\n", ["./ddrun.toml"]),  # the quote hides the key
    ("a = " + 2000 * "[" + "\n", ["./ddrun.toml:1:"]),
])
def test_a_wrong_file_is_refused_with_its_line(files, text, parts):
    files.project(text)
    job = files.run("touch", "ran")
    assert job.p.returncode == 2 and job.out == "" and not (files.here / "ran").exists()
    assert job.err.startswith("ddrun: error: ") and all(part in job.err for part in parts), job.err


ATTACKS = ["report = 'victim'", "metrics = 'victim'", "timeline = 'victim'", "log-dir = 'logs'", "hosts = '203.0.113.1'", "hostfile = 'victim'",
           "launcher = 'ssh'", "launch-env = '*'", "launch-env-exclude = 'PATH'", "master-addr = '203.0.113.1'", "chdir = '/'", "module = true",
           "no-python = true", "run-path = true", "requeue-on = 'timeout'", "mpi = 'auto'", "stdin = 'all'", "pty = 0", "simulate-nodes = 2",
           "signal-before-end = 'USR1@120'", "trace = 'link'"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_project_file_starts_writes_and_contacts_nothing(files, attack):
    (files.here / "victim").write_text("mine")
    files.project(attack + "\n")
    job = files.run("touch", "ran")
    assert job.p.returncode == 2 and sorted(os.listdir(files.here)) == ["ddrun.toml", "victim"]
    assert job.err == (f"ddrun: error: ./ddrun.toml:1: {attack.split()[0]}: a project file cannot set this option\n"
                       f"  tip: put it into {files.config}/ddrun.toml\n")
    assert (files.here / "victim").read_text() == "mine"


def test_no_config_ignores_files(files):
    files.project("nproc-per-node = 2\n")
    assert files.shown("--no-config", "true")["nproc-per-node"][1] == "default"
    assert files.shown("true", DDRUN_NO_CONFIG="yes")["nproc-per-node"][1] == "default"
    files.project("wrong = 2\n")
    assert files.shown("--no-config", "true")["nproc-per-node"][1] == "default"


def test_sections_of_hosts_apply_on_their_nodes_and_override_others(files):
    name = socket.gethostname().split(".")[0]
    files.project(f'[host."other,{name}"]\nmax-restarts = 1\n[host."*"]\nmax-restarts = 2\n[host."{name}"]\ntimeout = "3h"\n'
                  '[host."no[1-4]such*"]\nmax-restarts = 3\n[partition.gpu]\nmax-restarts = 4\n')
    shown = files.shown("true", SLURM_JOB_PARTITION="gpu")
    assert shown["max-restarts"] == ("2", "./ddrun.toml:4") and shown["timeout"] == ("3h", "./ddrun.toml:6")
    assert files.shown("true", SLURMD_NODENAME="no3such7")["max-restarts"] == ("3", "./ddrun.toml:8")


PROFILES = pathlib.Path(__file__).parents[2] / "contrib" / "profiles"


@pytest.mark.parametrize("profile", sorted(path.name for path in PROFILES.glob("*.toml")))
def test_each_profile_can_be_included_and_overridden(files, profile):
    text = (PROFILES / profile).read_text()
    (files.config / "fabric.toml").write_text(text)
    files.user('[environment]\nNCCL_SOCKET_IFNAME = "mine"\n[host."*"]\ninclude = "fabric.toml"\n')
    job = files.run("env")
    assert job.p.returncode == 0, job.err
    values = dict(re.findall(r"^([A-Z_0-9]+) = \"?([^\"# ]*)", text, re.M))
    assert len(values) >= 2 and values.pop("NCCL_SOCKET_IFNAME")
    environment = dict(line.split("=", 1) for line in job.out.splitlines() if "=" in line)
    assert environment["NCCL_SOCKET_IFNAME"] == "mine"
    assert all(environment[name].startswith(value) for name, value in values.items())


@pytest.mark.parametrize("include, mode, part", [
    ("missing.toml", 0o644, "missing.toml: No such file or directory"), ("open.toml", 0o666, "all users may write to it"),
    ("again.toml", 0o644, "again.toml:1: a file that is included cannot include others"),
    ("wrong.toml", 0o644, "wrong.toml:1: unknown option 'wrong'")])
def test_a_file_that_cannot_be_included_is_refused(files, include, mode, part):
    for name, text in (("open.toml", ""), ("again.toml", 'include = "open.toml"\n'), ("wrong.toml", "wrong = 1\n")):
        (files.config / name).write_text(text)
        (files.config / name).chmod(mode)
    files.user(f'include = "{include}"\n')
    job = files.run("true")
    assert job.p.returncode == 2 and part in job.err, job.err


@pytest.mark.parametrize("mode, part", [(0o620, "the members of group "), (0o602, "all users may write to it")])
def test_a_users_file_that_others_may_write_to_is_refused(files, mode, part):
    files.user("label = true\n")
    path = files.config / "ddrun.toml"
    os.chown(path, -1, 65533)
    path.chmod(mode)
    job = files.run("true")
    assert job.p.returncode == 2 and part in job.err and f"tip: chmod go-w '{path}'" in job.err, job.err


def test_a_file_that_an_access_control_list_opens_is_refused(files):
    files.user("label = true\n")
    path = files.config / "ddrun.toml"
    entries = [(0x01, 6, -1), (0x02, 6, ATTACKER), (0x04, 4, -1), (0x10, 6, -1), (0x20, 4, -1)]  # acl(5): owner, a user, group, mask, others
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no access control lists in {files.config}: {error}")
    job = files.run("true")
    assert job.p.returncode == 2 and "its access control list may permit" in job.err, job.err


def with_group(files, members, gid=VICTIM, name="victim"):
    """The words that run a command as a user of that name, in a mount namespace whose files of users and groups name it."""
    (files.here / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\nvictim:x:{VICTIM}:{gid}::/:/bin/sh\n")
    (files.here / "group").write_text(f"root:x:0:\n{name}:x:{gid}:{members}\n")
    return ["unshare", "--mount", "sh", "-c", f"mount --bind {files.here}/passwd /etc/passwd && mount --bind {files.here}/group /etc/group && "
            f'exec setpriv --reuid={VICTIM} --regid={gid} --clear-groups "$@"', "sh"]


@pytest.mark.parametrize("members, name, refused", [("", "victim", False), ("victim", "victim", False), ("victim,other", "victim", True),
                                                    ("", "project", True)])
@as_two_users[0]
@as_two_users[1]
def test_a_umask_of_002_with_a_private_group_is_accepted(shared, files, members, name, refused):
    path = f"{shared}/own/ddrun.toml"
    with open(path, "w", encoding="utf-8") as f:
        f.write("nproc-per-node = 3\n")
    os.chown(path, VICTIM, VICTIM)
    os.chmod(path, 0o664)
    env = clean_env(HOME=f"{shared}/own", XDG_CONFIG_HOME=f"{shared}/own", TMPDIR=f"{shared}/own")
    before = with_group(files, members, name=name)
    if subprocess.run([*before, "true"], check=False).returncode != 0:
        pytest.skip("no mount namespace, or no setpriv (Debian: util-linux)")
    done = subprocess.run([*before, DDRUN, "--show-config", "true"], cwd=f"{shared}/tmp", env=env, capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    if refused:
        assert done.returncode == 2 and f"the members of group {VICTIM} may write to it" in done.stderr
    else:
        assert f"nproc-per-node\t3\t{path}:1\n" in done.stdout, done.stderr


@pytest.mark.parametrize("make", ["link", "fifo", "second name", "open to a group"])
def test_a_project_file_that_may_be_anothers_is_ignored(files, make):
    (files.here / "other").write_text("wrong = true\n")
    path = files.here / "ddrun.toml"
    if make == "link":
        path.symlink_to("other")
    elif make == "fifo":
        os.mkfifo(path)
    elif make == "second name":
        path.hardlink_to(files.here / "other")
    else:
        path.write_text("wrong = true\n")
        path.chmod(0o664)
    job = files.run("true")
    assert job.p.returncode == 0 and job.err.count("warning: ignoring ./ddrun.toml: ") == 1, job.err


@pytest.fixture
def shared():
    """A directory as /tmp is, and a home of the victim's."""
    with tempfile.TemporaryDirectory(prefix="e2e") as top:
        os.chmod(top, 0o755)
        for name, mode, owner in (("tmp", 0o1777, 0), ("own", 0o700, VICTIM), ("theirs", 0o777, ATTACKER)):
            os.mkdir(f"{top}/{name}")
            os.chmod(f"{top}/{name}", mode)
            os.chown(f"{top}/{name}", owner, owner)
        yield top


PLANTED = 'label = true\n[environment]\nNCCL_DEBUG = "yes"\n'


def as_victim(shared, place):
    env = clean_env(HOME=f"{shared}/own", XDG_CONFIG_HOME=f"{shared}/own", TMPDIR=f"{shared}/own")
    return subprocess.run([DDRUN, "--nproc-per-node=1", "sh", "-c", "echo ${NCCL_DEBUG-no} $WORLD_SIZE"], env=env, cwd=f"{shared}/{place}",
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False, **as_user(VICTIM))


@pytest.mark.parametrize("place", ["tmp", "theirs"])
@as_two_users[0]
@as_two_users[1]
def test_a_file_that_another_user_planted_has_no_effect(shared, place):
    subprocess.run(["sh", "-c", f"cat >{shared}/{place}/ddrun.toml"], input=PLANTED, text=True, check=True, **as_user(ATTACKER))
    done = as_victim(shared, place)
    assert done.returncode == 0 and done.stdout == "no 1\n", done.stderr
    assert done.stderr.count(f"ignoring ./ddrun.toml: it belongs to uid {ATTACKER}") == 1


@as_two_users[0]
@as_two_users[1]
def test_a_file_of_the_user_in_anothers_directory_has_no_effect(shared):
    """Its owner could have moved it there from elsewhere."""
    subprocess.run(["sh", "-c", f"umask 022; cat >{shared}/theirs/ddrun.toml"], input=PLANTED, text=True, check=True, **as_user(VICTIM))
    done = as_victim(shared, "theirs")
    assert done.returncode == 0 and done.stdout == "no 1\n", done.stderr
    assert f"its directory belongs to uid {ATTACKER}" in done.stderr


@as_two_users[0]
@as_two_users[1]
def test_a_file_of_the_user_applies_in_the_users_directory(shared):
    subprocess.run(["sh", "-c", f"umask 022; cat >{shared}/own/ddrun.toml"], input=PLANTED, text=True, check=True, **as_user(VICTIM))
    done = as_victim(shared, "own")
    assert done.returncode == 0 and done.stdout == "[0]: yes 1\n", done.stderr


@as_two_users[0]
@as_two_users[1]
def test_a_home_that_cannot_be_searched_has_no_file(shared):
    """sudo -u without -H: HOME is that of root."""
    os.mkdir(f"{shared}/root", 0o700)
    env = clean_env(HOME=f"{shared}/root", TMPDIR=f"{shared}/own")
    done = subprocess.run([DDRUN, "--nproc-per-node=1", "echo", "ran"], env=env, cwd=f"{shared}/own", stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT, check=False, **as_user(VICTIM))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@as_two_users[0]
@as_two_users[1]
def test_a_users_file_that_exists_and_cannot_be_read_is_refused(shared):
    subprocess.run(["sh", "-c", f"umask 077; echo label=true >{shared}/own/ddrun.toml"], check=True)
    done = as_victim(shared, "tmp")
    assert done.returncode == 2 and f"cannot use {shared}/own/ddrun.toml: Permission denied" in done.stderr
