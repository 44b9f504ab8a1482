"""Every command in the documents for contributors works as written."""

import os
import re
import shlex
import shutil
import subprocess

import pytest

from support import BUILD, HERE, LIMIT, Job, answered, clean_env

TOP = os.path.abspath(os.path.join(HERE, "..", ".."))
DOCUMENTS = ("CONTRIBUTING.md", "tests/README.md", "docs/debugging.md", "docs/compatibility.md")
IN_A_JOB = ("ddctl ", "gdb -p ", "ps ")  # commands that inspect a running one


def blocks(document):
    """Yield the indented blocks of a document, each as a list of commands without comments."""
    with open(os.path.join(TOP, document), encoding="utf-8") as f:
        text = f.read()
    for block in re.findall(r"(?:\n    [^\n]+)+", text):
        yield [re.sub(r"\s+# .*", "", line).strip() for line in block.splitlines() if line.strip()]


ALL = [(name, command) for name in DOCUMENTS for block in blocks(name) for command in block]
BUILDS = [block for block in blocks("CONTRIBUTING.md") if block[0].startswith("mkdir -p build/")]
SINGLE = [(name, command) for name, command in ALL if not any(command in block for block in BUILDS)]


@pytest.fixture
def tree(tmp_path):
    """Return a directory with links to the source tree and, as build/, to the build under test."""
    for name in os.listdir(TOP):
        if not name.startswith(".") and name not in ("build", "autom4te.cache"):
            os.symlink(os.path.join(TOP, name), tmp_path / name)
    os.symlink(BUILD, tmp_path / "build")
    return tmp_path


def shell(command, where, **env):
    env = clean_env(PATH=f"{BUILD}:{os.environ['PATH']}", **env)
    return subprocess.run(["bash", "-c", command], cwd=where, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def steps_of_check():
    with open(os.path.join(TOP, "contrib", "check"), encoding="utf-8") as f:
        return re.findall(r"^(\w+) *\| step_", f.read(), re.M)


def shortened(command):
    """Return the command, with less work where it would take long."""
    if command.startswith("contrib/pytest"):
        return command + " --collect-only"
    if command.startswith("make -C build -j4 check"):
        return command + " TESTS=tests/unit/test_hostlist"
    return command.replace("sleep 600", "sleep 0")


@pytest.mark.parametrize("document, command", SINGLE)
def test_a_command_of_a_document_works(document, command, tree):
    program = next(word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word))
    if program == "contrib/check":
        assert set(command.split()[1:]) <= set(steps_of_check())
        return
    if "/" not in program and program != "export" and not program.startswith("dd") and shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine (Debian: {program})")
    if not command.startswith(IN_A_JOB):
        alone = ["flock", BUILD] if program == "make" else []  # two would compile the same files at once
        done = shell(shlex.join([*alone, "bash", "-c", shortened(command)]), tree, TMPDIR=str(tree))
        assert done.returncode == 0, done.stdout + done.stderr
        return
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "sh", "-c", 'echo "ready $TORCHELASTIC_RUN_ID"; exec sleep 600') as job:
        name = re.search(r"ready (\S+)\n", job.line("ready")).group(1)
        of_job = re.sub(r"^ddctl (?!jobs)\w+", rf"\g<0> --job={name}", command)
        of_job = re.sub(r"^ddctl top\b", r"\g<0> --once", of_job)  # there is no terminal
        command = ["bash", "-c", of_job.replace("PID", str(job.agents()[0]))]
        done = answered(command, cwd=tree, env=clean_env(PATH=f"{BUILD}:{os.environ['PATH']}"))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.large
@pytest.mark.parametrize("block", BUILDS, ids=lambda block: block[0].split("/")[-1])
def test_a_build_of_a_document_works(block, tree):
    os.remove(tree / "build")
    if block[0].endswith("coverage") and shutil.which("gcov") is None:
        pytest.skip("no gcov on this machine (Debian: gcc)")
    done = shell("set -e\n" + "\n".join(block), tree)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_documents_have_the_commands_that_are_tried():
    """blocks() finds the commands: each kind occurs in one of the documents."""
    for start in ("contrib/check", "contrib/pytest", "make -C build", "ddctl status", "gdb -p", "build/tests/sim/sim"):
        assert any(command.startswith(start) for _, command in SINGLE), start
    assert len(BUILDS) == 3
