"""What contrib/quickstart and contrib/check share (contrib/common.sh): nothing large is fetched that nobody has asked for."""

import json
import os
import subprocess

import pytest

from support import HERE, LIMIT, PYTHON

TOP = os.path.join(HERE, "..", "..")

# A pip that answers a dry run with a report, and notes what it was asked to install.
PIP = """#!{python}
import json, sys
args = sys.argv[1:]
if "--dry-run" in args:
    with open(args[args.index("--report") + 1], "w") as f:
        json.dump({{"install": [{{"metadata": {{"name": "torch", "requires_dist": {needs}}}}}]}}, f)
elif not any(a.startswith("pip>") for a in args):
    with open("{seen}", "a") as f:
        f.write(" ".join(a for a in args if not a.startswith("-")) + "\\n")
"""
CPU = ["filelock", "sympy>=1.13.3", 'nvidia-x; extra == "more"']
CUDA = [*CPU, 'nvidia-cublas==13.1.0.3; platform_system == "Linux"']


def need_torch(place, needs, **env):
    """need_venv with this pip: the shell's end and what was installed."""
    seen = place / "installed"
    os.makedirs(place / "venv" / "bin")
    os.symlink(PYTHON, place / "venv" / "bin" / "python")
    pip = place / "venv" / "bin" / "pip"
    pip.write_text(PIP.format(python=PYTHON, needs=json.dumps(needs), seen=seen))
    pip.chmod(0o755)
    script = ('source contrib/common.sh; build=$1; missing_distributions() { echo "$@"; }; '
              'need_venv "torch==2.13.0" numpy')
    end = subprocess.run(["bash", "-c", script, "bash", str(place)], cwd=TOP, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, timeout=LIMIT, check=False, env={**os.environ, "DDRUN_VENV": str(place / "venv"), **env})
    return end, seen.read_text() if seen.exists() else ""


@pytest.mark.parametrize("needs, env", [(CPU, {}), (CUDA, {"DDRUN_TORCH_CUDA": "yes"})])
def test_what_is_wanted_is_fetched(tmp_path, needs, env):
    end, installed = need_torch(tmp_path, needs, **env)
    assert end.returncode == 0, end.stdout + end.stderr
    assert "torch==2.13.0" in installed


def test_the_build_with_cuda_is_not_fetched_unasked(tmp_path):
    end, installed = need_torch(tmp_path, CUDA)
    assert end.returncode != 0 and installed == ""
    assert "3 GB" in end.stdout and "PIP_EXTRA_INDEX_URL" in end.stdout


JOBS = os.path.join(TOP, "contrib", "jobs")
SCRIPTS = sorted(f for f in os.listdir(JOBS) if not f.endswith((".lua", ".tcl", ".md")))

# Notes its arguments and where it was started; as each command that a job's script may call.
NOTE = '#!/bin/bash\nprintf "%s\\n" "$(basename "$0")" "$@" >"$NOTED"; pwd >"$NOTED.cwd"\n'


def lines_of_work(name):
    with open(os.path.join(JOBS, name), encoding="utf-8") as f:
        return [line for line in f.read().splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_job_script_is_short_and_gives_its_program_to_ddrun(name, tmp_path):
    work = lines_of_work(name)
    assert 1 <= len(work) <= 6
    for command in ("ddrun", "srun", "flux", "apptainer"):
        (tmp_path / command).write_text("#!/bin/sh\necho 'node[1-2]'\n" if command == "flux" else NOTE)
        (tmp_path / command).chmod(0o755)
    os.makedirs(tmp_path / "venv" / "bin")
    (tmp_path / "venv" / "bin" / "activate").write_text("")
    (tmp_path / "bashrc").write_text("module() { :; }\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "NOTED": str(tmp_path / "noted"), "SLURM_NNODES": "2",
           "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_NAME": "run7", "ETCD": "etcd://h/jobs", "PBS_O_WORKDIR": str(tmp_path), "COMMAND": "train.py --lr 3", "IMAGE": "/an/image.sif",
           "BASH_ENV": str(tmp_path / "bashrc")}
    end = subprocess.run(["bash", os.path.join(JOBS, name), "train.py", "--lr", "3"], cwd=tmp_path, env=env, capture_output=True,
                         stdin=subprocess.DEVNULL, text=True, timeout=LIMIT, check=False)
    assert (end.returncode, end.stderr) == (0, "")
    words = (tmp_path / "noted").read_text().splitlines()
    assert "ddrun" in words and "train.py" in words[words.index("ddrun"):]
    if '"$@"' in work[-1] or "COMMAND" in work[-1]:
        assert words[words.index("train.py"):][:3] == ["train.py", "--lr", "3"]
    assert (tmp_path / "noted.cwd").read_text().strip() == str(tmp_path)


def test_the_list_of_job_scripts_is_whole():
    with open(os.path.join(JOBS, "README.md"), encoding="utf-8") as f:
        text = f.read()
    assert [name for name in os.listdir(JOBS) if name != "README.md" and f"`{name}`" not in text] == []
