"""The Slurm scripts of contrib/jobs, submitted unchanged; the command line sets sizes alone."""

import os

import pytest

from containers import PY, usable
from support import BUILD, DDRUN, HERE, json_lines, program
from test_containers_slurm import box
from test_slurm import LIMIT, slurm  # noqa: F401

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")
JOBS = os.path.abspath(os.path.join(HERE, "..", "..", "contrib", "jobs"))

# "apptainer exec OPTION... IMAGE COMMAND..." with bubblewrap instead
APPTAINER = """#!/bin/bash
while [[ $1 != image ]]; do shift; done
shift
exec {box} "$@"
"""


@pytest.mark.parametrize("name, options, ranks, outputs", [
    ("slurm", ["-N2"], 4, 1), ("slurm-array", ["-N2", "--array=5-6"], 4, 2), ("slurm-elastic", ["-N4"], 8, 1),
    ("slurm-uneven", None, 8, 1), ("slurm-container", ["-N2"], 4, 1), ("slurm-container-inside", ["-N2"], 4, 1)])
def test_a_script_runs_its_program_on_all_nodes(slurm, name, options, ranks, outputs):  # noqa: F811
    place = slurm.place
    if "container" in name:
        usable("bwrap", None)
        slurm.file("apptainer", APPTAINER.format(box=" ".join(box("/run/munge"))))
    path = ["env", f"PATH={place}:{BUILD}:{os.environ['PATH']}", "IMAGE=image", f"HOME={place}"]
    with open(os.path.join(JOBS, f"{name}.sbatch"), encoding="utf-8") as f:
        slurm.file("script", f.read())
    size = ["--gpus-per-node=2", *options] if options else []
    python = {} if "inside" not in name else {"PYTHON_EXEC": PY}
    with slurm.popen([*path, "sbatch", "--wait", *size, "--output=out-%j", "--error=err-%j", "script",
                      program("inside.py"), "0"], env=python) as job:
        done = job.wait(LIMIT)
    said = {kind: [open(os.path.join(place, f), encoding="utf-8").read() for f in os.listdir(place) if f.startswith(f"{kind}-")]
            for kind in ("out", "err")}
    assert done.rc == 0, (done, said)
    found = [sorted((w["rank"], w["met"], w["scontrol"]) for w in json_lines(text)) for text in said["out"]]
    assert found == [[(r, True, "container" not in name) for r in range(ranks)]] * outputs, said
