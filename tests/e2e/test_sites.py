"""docs/sites.md: each script of the page runs as written, with smaller requests for resources."""

import os
import re
import textwrap

import pytest

from support import BUILD, DDRUN, HERE, json_lines, program
from test_launch import ssh  # noqa: F401
from test_openpbs import Job as PbsJob, pbs  # noqa: F401
from test_slurm import LIGHT, LIMIT, assert_trained, slurm  # noqa: F401


pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")

NODES = ["node1", "node2"]
PAGE = os.path.join(HERE, "..", "..", "docs", "sites.md")

# Connects to the server of each task of the cluster, and waits until each has connected to its own.
TF = """
    import json, os, socket, time
    config = json.loads(os.environ["TF_CONFIG"])
    workers = config["cluster"]["worker"]
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if os.environ.get("TF_GRPC_REUSE_PORT") == "1":  # as TensorFlow does
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", int(workers[config["task"]["index"]].rsplit(":", 1)[1])))
    server.listen()
    for address in workers:
        host, port = address.rsplit(":", 1)
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
    for _ in workers:
        server.accept()
    print(json.dumps({"task": config["task"], "workers": len(workers)}) + "\\n", end="", flush=True)
"""
HOROVOD = """
    import runpy, sys
    sys.argv.append("bootstrap")
    runpy.run_path("hvd_client.py", run_name="__main__")
"""

# In place of PALS' mpiexec and of aprun: they accept the options that ddrun gives them and start one process on each node.
START = """i=0; pids=()
for host in {hosts}; do
    ssh "$host" "$(export -p); export {variables}; cd $PWD; $(printf '%q ' "$@")" </dev/null &
    pids+=($!); i=$((i + 1))
done
code=0
for pid in "${{pids[@]}}"; do wait "$pid" || code=$?; done
exit $code
"""
OPTIONS = '#!/bin/bash\n[[ "${{*:1:{count}}}" = "{options}" ]] || {{ echo "unexpected: $*" >&2; exit 64; }}\nshift {count}\n'
MPIEXEC = OPTIONS.format(count=7, options="-n 2 --ppn 1 --cpu-bind none --envall") + START.format(
    hosts='$(uniq "$PBS_NODEFILE")',
    variables="PALS_NODEID=$i PALS_RANKID=$i PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=1 PALS_APID=a-1 PMI_SIZE=2")
APRUN = OPTIONS.format(count=6, options="-n 2 -N 1 -cc none") + START.format(hosts="node1 node2", variables="ALPS_APP_PE=$i")


def recipes():
    """Return the script of each section, by its title."""
    with open(PAGE, encoding="utf-8") as f:
        sections = re.split(r"^## (.*)\n", f.read(), flags=re.M)
    found = {title: re.findall(r"(?:^    .*\n)+", text, re.M) for title, text in zip(sections[1::2], sections[2::2])}
    assert all(len(blocks) == 1 for blocks in found.values() if blocks)
    return {title: textwrap.dedent(blocks[0]) for title, blocks in found.items() if blocks}


RECIPES = recipes()
SLURM = {"ZIH, TF_CONFIG": 1, "ZIH, srun": 2, "ZIH, torchrun": 2, "IT4I, Horovod": 2}  # GPUs of each node here
PBS = ("NCI Gadi, pbsdsh and torchrun", "NCAR Derecho, mpiexec and torchrun")
COBALT = {"COBALT_JOBID": "5", "COBALT_PARTSIZE": "2"}
STAND_INS = {
    "ALCF ThetaGPU, Horovod": ("node1", {**COBALT, "COBALT_NODEFILE": "NODEFILE"}, {}, 8),
    "ALCF Polaris, PALS": ("node1", {"PBS_JOBID": "7.pbs", "PBS_NODEFILE": "NODEFILE", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODENUM": "0",
                                     "PBS_TASKNUM": "1", "PBS_O_WORKDIR": "PLACE"}, {"mpiexec": MPIEXEC}, 4),
    "ALCF Theta, aprun": ("node4", {**COBALT, "COBALT_PARTNAME": "1-2"}, {"aprun": APRUN}, 4),
}


def lines_of_work(script):
    return [line for line in script.splitlines() if not line.startswith("#")]


def put_program(jobs, title):
    """Write the train.py of that recipe."""
    if "TF_CONFIG" in title:
        jobs.file("train.py", textwrap.dedent(TF))
    elif "Horovod" in title:
        with open(program("hvd_client.py"), encoding="utf-8") as f:
            jobs.file("hvd_client.py", f.read())
        jobs.file("train.py", textwrap.dedent(HOROVOD))
    else:
        os.symlink(LIGHT, jobs.file("train.py"))


def assert_ran(done, title, address, each):
    assert done.rc == 0, done.out + done.err
    if "TF_CONFIG" in title:
        said = sorted(json_lines(done.out), key=lambda line: line["task"]["index"])
        assert said == [{"task": {"type": "worker", "index": i}, "workers": 2} for i in range(2)], done.out
    elif "Horovod" in title:
        assert len(re.findall(rf"^rank \d+ of {2 * each}: \d+ requests", done.out, re.M)) == 2 * each, done.out
    else:
        assert_trained(done, NODES, address, per_node=each, silent=False)


@pytest.mark.parametrize("title", SLURM)
def test_slurm_recipe_runs_in_a_batch_job(slurm, title):  # noqa: F811
    put_program(slurm, title)
    slurm.file("script", RECIPES[title])
    size = ["-N2", f"--gpus-per-node={SLURM[title]}", "--cpus-per-gpu=1"]
    with slurm.popen(["env", f"PATH={BUILD}:{os.environ['PATH']}", "sbatch", "--wait", *size, "--output=out", "--error=err", "script"]) as job:
        done = job.wait(LIMIT)
    with open(slurm.file("out"), encoding="utf-8") as out, open(slurm.file("err"), encoding="utf-8") as err:
        done = type(done)(done.rc, out.read(), err.read())
    assert_ran(done, title, slurm.cluster.address("node1"), SLURM[title])


@pytest.mark.parametrize("title", PBS)
def test_pbs_recipe_runs_in_a_batch_job(pbs, title):  # noqa: F811
    put_program(pbs, title)
    pbs.file("script", RECIPES[title])
    env = "\n".join(f"export {name}='{value}'" for name, value in pbs.env.items())
    shell = pbs.file("shell", f"#!/bin/bash\n{env}\nexport PATH={BUILD}:$PATH\ncd '{pbs.place}' && exec >out 2>err\ncd && exec bash \"$@\"\n")
    done = PbsJob(pbs, ["qsub", "-C", "", "-S", shell, "-l", "select=2:ncpus=2:mpiprocs=1", "-l", "place=scatter", "-W", "block=true",
                        "script"]).wait()
    assert_ran(done, title, pbs.cluster.address("node1"), 4)


@pytest.mark.parametrize("title", STAND_INS)
def test_recipe_runs_with_the_variables_of_its_scheduler(ssh, title):  # noqa: F811
    node, variables, programs, each = STAND_INS[title]
    jobs = ssh.slurm
    put_program(jobs, title)
    os.makedirs(jobs.file("bin"), exist_ok=True)
    os.chmod(jobs.file("bin"), 0o755)
    for name, text in programs.items():
        jobs.file(f"bin/{name}", text)
    if "COBALT_PARTNAME" in variables:  # the host names that ddrun derives from it
        for name in ssh.names:
            names = "".join(f"{ssh.cluster.address(f'node{i}')} nid{i:05}\n" for i in (1, 2))
            ssh.cluster.set_hosts(name, ssh.cluster.hosts(name) + names)
    known = {"NODEFILE": jobs.file("nodefile", "".join(f"{name}\n" for name in NODES)), "PLACE": jobs.place}
    env = {name: known.get(value, value) for name, value in variables.items()}
    env["PATH"] = f"{jobs.file('bin')}:{BUILD}:{os.environ['PATH']}"
    with jobs.popen(["bash", jobs.file("script", RECIPES[title])], node=node, env=env) as job:
        done = job.wait(LIMIT)
    assert_ran(done, title, ssh.cluster.address("node1"), each)


def test_every_recipe_of_the_page_is_run():
    assert sorted(RECIPES) == sorted([*SLURM, *PBS, *STAND_INS]) and len(RECIPES) == 9


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_is_as_short_as_its_index_states(title):
    with open(PAGE, encoding="utf-8") as f:
        row = next(line for line in f if line.startswith(f"| [{title}]("))
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    assert f"](#{anchor})" in row
    work = len(lines_of_work(RECIPES[title]))
    assert work <= 6 and int(row.split("|")[4]) == work
