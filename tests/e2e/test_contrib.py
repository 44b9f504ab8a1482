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
