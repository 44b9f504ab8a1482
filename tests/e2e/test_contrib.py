"""contrib/jobs: each script is short and passes its program to ddrun."""

import os
import subprocess

import pytest

from support import HERE, LIMIT

TOP = os.path.join(HERE, "..", "..")

JOBS = os.path.join(TOP, "contrib", "jobs")
SCRIPTS = sorted(f for f in os.listdir(JOBS) if not f.endswith((".lua", ".tcl", ".md")))

# Stands in for each command that a job script may call: records its arguments and its working directory.
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
