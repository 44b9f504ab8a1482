"""Health checks of NVIDIA GPUs, and what ddctl top shows of them, with a stand-in for NVML whose faults a test chooses (programs/standin_nvml.c)."""

import json
import os
import re
import shutil
import subprocess

import pytest

from support import LIMIT, Job, clean_env, json_lines, program, run, some_line, until
from test_ddctl_job import ddctl
from test_top import job_id

LEAVES = f"--last-call={LIMIT}s"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no cc on this machine (Debian: gcc)")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, program("standin_nvml.c")], check=True)
    return path


class Gpus:
    """The environment of ddrun on a machine with these GPUs. `faults` apply at once, those of break_() later."""

    def __init__(self, library, place):
        self.library, self.file, self.heard = library, place / "faults", place / "heard"

    def env(self, faults="", gpus=2, **more):
        visible = ",".join(str(i) for i in range(gpus))
        return clean_env(**{"DDRUN_NVML_LIBRARY": str(self.library), "CUDA_VISIBLE_DEVICES": visible, "STANDIN_NVML_FILE": str(self.file),
                            "STANDIN_NVML_HEARD": str(self.heard), "STANDIN_NVML": f"gpus={gpus},{faults}", **more})


@pytest.fixture
def gpus(library, tmp_path):
    return Gpus(library, tmp_path)


ONE = ("--nproc-per-node=1",)


def test_gpus_in_order_are_fit(gpus):
    job = run(*ONE, "echo", "ok", env=gpus.env())
    assert (job.p.returncode, job.out, job.err) == (0, "ok\n", "")


@pytest.mark.parametrize("faults, says", [
    ("recovery:1=1", ["GPU 1 (00000000:18:00.0)", "needs a reset", "nvidia-smi --gpu-reset"]),
    ("recovery:0=2", ["GPU 0 (00000000:17:00.0)", "reboot"]),
    ("recovery:0=99,ecc:0=3", ["GPU 0", "3 uncorrectable memory errors"]),
    ("rows-failed:1=1", ["GPU 1", "replace the GPU"]),
    ("lost:1=15", ["GPU 1 (00000000:18:00.0)", "fallen off the bus"]),
    ("lost:1=16", ["GPU 1 (00000000:18:00.0)", "needs a reset"]),
    ("handle:1=15", ["GPU 1", "fallen off the bus"]),
    ("init=18", ["version mismatch", "reboot the node"]),
])
def test_a_gpu_with_a_fault_ends_a_job_that_needs_it(gpus, faults, says):
    job = run(*ONE, program("show_env.py"), env=gpus.env(faults))
    assert job.p.returncode == 1
    assert some_line(job.err, "cannot be used", *says), job.err
    assert json_lines(job.out) == [], "workers were started"


@pytest.mark.parametrize("faults, says", [
    ("throttle:1=0x48", ["GPU 1 (00000000:18:00.0)", "too hot"]),
    ("throttle:0=0x80", ["GPU 0", "power brake"]),
    ("ecc:0=3", ["GPU 0", "3 uncorrectable memory errors", "can be used"]),
    ("rows-pending:1=1", ["GPU 1", "at the next reset"]),
    ("pages:1=1", ["GPU 1", "at the next reset"]),
    ("links-down:1=2", ["GPU 1", "3 active NVLinks, but another GPU of the node has 4"]),
])
def test_what_does_not_stop_a_gpu_is_a_warning(gpus, faults, says):
    job = run(*ONE, "echo", "ok", env=gpus.env(faults))
    assert (job.p.returncode, job.out) == (0, "ok\n")
    assert some_line(job.err, "warning", *says), job.err


def test_gpus_of_other_jobs_are_not_checked(gpus):
    job = run(*ONE, "echo", "ok", env=gpus.env("recovery:1=1,throttle:1=8", CUDA_VISIBLE_DEVICES="0"))
    assert (job.p.returncode, job.err) == (0, "")
    job = run(*ONE, "echo", "ok", env=gpus.env("recovery:1=1", CUDA_VISIBLE_DEVICES="GPU-00000001"))
    assert job.p.returncode == 1 and "GPU 1" in job.err


def test_a_node_whose_gpu_needs_a_reset_is_left_out_where_others_suffice(gpus):
    """Each of the three simulated nodes has one GPU."""
    job = run("--simulate-nodes=3", "--nnodes=2:3", LEAVES, *ONE, program("show_env.py"), env=gpus.env("recovery:1=1", gpus=3))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "excluded", "GPU 1", "needs a reset")
    workers = [w["env"] for w in json_lines(job.out)]
    assert {w["WORLD_SIZE"] for w in workers} == {"2"}
    assert {w["CUDA_VISIBLE_DEVICES"] for w in workers} == {"0", "2"}


def test_a_spare_takes_the_place_of_a_node_whose_gpu_broke(gpus, tmp_path):
    """The GPU of rank 1 breaks in the first round; the worker fails, as programs do then."""
    script = f"""
if [ $DDRUN_ROUND = 0 ]; then
    if [ $RANK = 1 ]; then echo recovery:$CUDA_VISIBLE_DEVICES=1 > {gpus.file}; echo $CUDA_VISIBLE_DEVICES > {tmp_path}/broken; exit 5; fi
    sleep 600
fi
echo "{{\\"gpu\\": \\"$CUDA_VISIBLE_DEVICES\\", \\"world\\": \\"$WORLD_SIZE\\"}}" """
    path = tmp_path / "report.json"
    job = run("--simulate-nodes=3", "--nnodes=2:2", LEAVES, *ONE, "--max-restarts=1", f"--report={path}", "sh", "-c", script, env=gpus.env(gpus=3))
    assert job.p.returncode == 0, job.err
    broken = (tmp_path / "broken").read_text().strip()
    assert some_line(job.err, "excluded", f"GPU {broken} (", "needs a reset"), job.err
    lines = json_lines(job.out)
    assert [w["world"] for w in lines] == ["2", "2"]
    assert sorted([broken] + [w["gpu"] for w in lines]) == ["0", "1", "2"]


def test_the_job_ends_if_no_spare_can_replace_a_gpu_that_broke(gpus):
    script = f"echo rows-failed:0=1 > {gpus.file}; exit 5"
    job = run(*ONE, "--max-restarts=3", "sh", "-c", script, env=gpus.env())
    assert job.p.returncode != 0
    assert some_line(job.err, "GPU 0", "could not remap"), job.err


def test_an_xid_of_failed_hardware_excludes_the_gpu(gpus):
    script = f"echo xid:1=79 > {gpus.file}; until [ -e {gpus.heard} ]; do sleep 0.05; done; exit 5"
    job = run(*ONE, "--max-restarts=1", "sh", "-c", script, env=gpus.env())
    assert job.p.returncode != 0
    assert some_line(job.err, "GPU 1 (00000000:18:00.0)", "XID 79 (it has fallen off the bus)"), job.err


def test_an_xid_of_a_program_is_a_warning(gpus):
    script = f"[ $DDRUN_ROUND = 1 ] && exit 0; echo xid:1=31 > {gpus.file}; until [ -e {gpus.heard} ]; do sleep 0.05; done; exit 5"
    job = run(*ONE, "--max-restarts=1", "sh", "-c", script, env=gpus.env())
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "warning", "XID 31 (an invalid memory access by a program)"), job.err


def test_a_driver_without_events_is_not_an_error(gpus):
    job = run(*ONE, "--max-restarts=1", "--log-level=debug", "sh", "-c", "[ $DDRUN_ROUND = 1 ]", env=gpus.env("no-events=1"))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "debug", "xids-not-readable")


def test_memory_in_use_after_a_round_is_a_warning(gpus):
    script = f"[ $DDRUN_ROUND = 1 ] && exit 0; echo used:1=9000000000 > {gpus.file}; exit 5"
    job = run(*ONE, "--max-restarts=1", "sh", "-c", script, env=gpus.env("used:1=5000000000"))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "warning", "GPU 1", "8.4 of 80.0 GiB", "3.7 GiB more"), job.err


def test_errors_of_links_between_rounds_are_a_warning(gpus):
    script = f"[ $DDRUN_ROUND = 1 ] && exit 0; echo link-errors:1=120 > {gpus.file}; exit 5"
    job = run(*ONE, "--max-restarts=1", "sh", "-c", script, env=gpus.env("link-errors:1=100"))
    assert job.p.returncode == 0, job.err
    assert some_line(job.err, "warning", "GPU 1", "20 errors on its NVLinks"), job.err


def test_a_link_that_is_lost_between_rounds_excludes_the_gpu(gpus):
    job = run(*ONE, "--max-restarts=1", "sh", "-c", f"echo links-down:0=8 > {gpus.file}; exit 5", env=gpus.env())
    assert job.p.returncode != 0
    assert some_line(job.err, "GPU 0", "has lost NVLink 3"), job.err


def test_a_gpu_that_is_no_longer_listed_excludes_the_node(gpus):
    job = run(*ONE, "--max-restarts=1", "sh", "-c", f"echo gpus=1 > {gpus.file}; exit 5", env=gpus.env())
    assert job.p.returncode != 0
    assert some_line(job.err, "GPU 00000000:18:00.0", "no longer listed"), job.err


def sees_all_pids():
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


NO_PROCESS = 4194304  # PID_MAX_LIMIT of Linux


@pytest.mark.skipif(not sees_all_pids(), reason="a pid namespace: NVML's process ids mean nothing in it")
def test_memory_that_a_dead_process_holds_excludes_the_gpu(gpus):
    held = f"pid:0={NO_PROCESS},bytes:0=5000000000"
    job = run(*ONE, "echo", "ok", env=gpus.env(held))
    assert job.p.returncode == 1
    assert some_line(job.err, "GPU 0", f"4.7 GiB of memory held by process {NO_PROCESS}, which has ended"), job.err
    job = run(*ONE, "echo", "ok", env=gpus.env(f"{held},frees-after:0=3"))
    assert (job.p.returncode, job.err) == (0, ""), "the driver needs a moment to free it"


@pytest.mark.skipif(not sees_all_pids(), reason="a pid namespace: NVML's process ids mean nothing in it")
def test_memory_that_another_process_holds_is_a_warning(gpus):
    job = run(*ONE, "echo", "ok", env=gpus.env(f"pid:0={os.getpid()},bytes:0=5000000000"))
    assert job.p.returncode == 0
    assert some_line(job.err, "warning", "GPU 0", f"held by process {os.getpid()}"), job.err


@pytest.mark.parametrize("fault, says", [("hang=1", "the driver of the GPUs (NVML)"), ("hang:1=1", "GPU 1 (NVML)")])
def test_a_driver_that_hangs_makes_its_node_unfit(gpus, fault, says):
    with Job(*ONE, "--health-timeout=1s", "echo", "ok", env=gpus.env(fault)) as job:
        assert job.wait() == 1
        assert some_line(job.err, "cannot be used", says, "did not respond within 1 s"), job.err
        job.assert_nothing_left()


def test_a_driver_that_hangs_after_the_start_leaves_the_node_out(gpus):
    job = run(*ONE, "--health-timeout=15s", "--max-restarts=1", "sh", "-c", f"echo hang:0=1 > {gpus.file}; exit 5", env=gpus.env())
    assert job.p.returncode != 0
    assert some_line(job.err, "GPU 0 (NVML)", "did not respond within 15 s"), job.err


def test_a_missing_library_is_one_line_for_debugging(gpus):
    env = gpus.env(DDRUN_NVML_LIBRARY="/nonexistent/libnvidia-ml.so.1")
    job = run(*ONE, "echo", "ok", env=env)
    assert (job.p.returncode, job.out, job.err) == (0, "ok\n", "")
    job = run(*ONE, "--log-level=debug", "echo", "ok", env=env)
    assert len([line for line in job.err.splitlines() if "NVML" in line]) == 1, job.err
    assert some_line(job.err, "debug", "cannot load NVML", "/nonexistent/libnvidia-ml.so.1")


def test_other_checks_leave_nvml_alone(gpus):
    job = run(*ONE, "--health=ib,shm", "echo", "ok", env=gpus.env("hang=1"))
    assert (job.p.returncode, job.err) == (0, "")


def test_the_process_that_waits_for_xids_ends_with_the_agent(gpus):
    with Job(*ONE, "sh", "-c", "echo up; sleep 600", env=gpus.env()) as job:
        job.line("up")
        until(lambda: len(job.processes("ddrun-health")) == 1, say="XIDs are waited for")
        for agent in job.agents():
            os.kill(agent, 9)
        assert job.wait() != 0
        job.assert_nothing_left()


def test_warnings_are_in_status_events_and_report(gpus, tmp_path):
    path = tmp_path / "report.json"
    env = gpus.env("throttle:1=0x40", gpus=2)
    script = f'[ $RANK = 1 ] || echo "up $TORCHELASTIC_RUN_ID."; until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3'
    with Job("--simulate-nodes=2", *ONE, f"--report={path}", "sh", "-c", script, env=env) as job:
        name = re.search(r"up (\S+)\.\n", job.line("up ")).group(1)
        status = json.loads(ddctl("status", f"--job={name}", "--format=json"))
        said = {n["name"]: n.get("warnings") for n in status["nodes"]}
        (node,) = [name for name, w in said.items() if w]
        assert len(said[node]) == 1 and "GPU 1 (00000000:18:00.0) runs at reduced clocks" in said[node][0]
        assert some_line(ddctl("status", f"--job={name}"), node, "warning", "GPU 1")
        events = [json.loads(line) for line in ddctl("events", f"--job={name}", "--format=json").splitlines()]
        assert [(e["node"], e["text"]) for e in events if e["event"] == "warning"] == [(node, said[node][0])]
        (tmp_path / "go").touch()
        assert job.wait() == 3
        assert some_line(job.err, "  warning: ", node, "GPU 1"), job.err
    report = json.loads(path.read_text())
    assert report["warnings"] == [{"node": node, "text": said[node][0]}]


# ---- ddctl top ----

SLEEP = ("--no-python", "sh", "-c", 'echo "up $RANK"; sleep 600; :')


def top_of(job, wanted=lambda workers: True):
    """The workers in the JSON of ddctl top, once all run and `wanted` holds for them."""
    def asked():
        workers = json.loads(ddctl("top", f"--job={job_id(job)}", "--format=json"))["workers"]
        return workers if workers and all(w["pid"] for w in workers) and wanted(workers) else None
    return until(asked, say="what the workers use")


def end(job):
    job.p.terminate()
    job.wait()
    job.assert_nothing_left()


BUSY = f"busy:0=97,used:0={61 << 30},clock:0=1410,busy:1=40,used:1={1 << 30},clock:1=1980"


def test_top_shows_the_gpu_of_each_worker(gpus):
    with Job("--nproc-per-node=2", *SLEEP, env=gpus.env(BUSY)) as job:
        workers = top_of(job, lambda workers: all(w["gpus"] for w in workers))
        assert [w["gpus"] for w in workers] == [
            [{"index": 0, "percent": 97, "memory_bytes": 61 << 30, "memory_total_bytes": 80 << 30, "clock_mhz": 1410, "clock_max_mhz": 1980}],
            [{"index": 1, "percent": 40, "memory_bytes": 1 << 30, "memory_total_bytes": 80 << 30, "clock_mhz": 1980, "clock_max_mhz": 1980}]]

        def text():
            shown = ddctl("top", f"--job={job_id(job)}", "--once")
            return shown if "GPU" in shown else None
        assert re.search(r"^ +0 .*  running .*  97%   61G 1410/1980 ", until(text), re.M)
        end(job)


def test_the_only_worker_of_a_node_has_all_gpus_that_it_may_use(gpus):
    with Job(*ONE, *SLEEP, env=gpus.env("clock:3=700", gpus=4, CUDA_VISIBLE_DEVICES="GPU-00000003,1")) as job:
        (worker,) = top_of(job, lambda workers: workers[0]["gpus"])
        assert [(gpu["index"], gpu["clock_mhz"]) for gpu in worker["gpus"]] == [(3, 700), (1, None)]
        end(job)


def test_the_node_whose_gpu_is_throttled_is_named_and_no_other(gpus):
    """Three simulated nodes with two GPUs each; only GPUs that have work are compared."""
    clocks = ",".join(f"busy:{i}={0 if i == 5 else 97},clock:{i}={300 if i == 5 else 1755}" for i in range(6))
    with Job("--simulate-nodes=3", "--nproc-per-node=2", "--straggler-interval=200ms", *SLEEP, env=gpus.env(clocks, gpus=6)) as job:
        def stragglers():
            return json.loads(ddctl("status", f"--job={job_id(job)}", "--format=json")).get("stragglers")
        gpus.file.write_text("clock:3=345,throttle:3=0x48")
        (found,) = until(stragglers, say="a straggler")
        workers = top_of(job, lambda workers: all(w["gpus"] for w in workers))
        node, = [w["node"] for w in workers if [g["index"] for g in w["gpus"]] == [3]]
        assert found["node"] == node and found["text"].startswith(f"rank {found['rank']} on {node} uses GPU 3, which runs at 345 of 1980 MHz")
        assert "88 %" in found["text"] and "too hot" in found["text"]
        gpus.file.write_text("")
        until(lambda: not stragglers(), say="the end of it")
        said = [line for line in ddctl("events", f"--job={job_id(job)}").splitlines() if "straggler" in line]
        assert len(said) == 2 and all(f"on {node} uses GPU 3" in line for line in said), said
        end(job)


def test_top_answers_while_the_driver_hangs_and_asks_it_once(gpus):
    with Job("--health=ib,shm", "--nproc-per-node=2", *SLEEP, env=gpus.env("hang=1")) as job:
        for _ in range(3):
            workers = top_of(job)
            assert [w["gpus"] for w in workers] == [[], []]
            assert len(job.processes("ddrun-gpus")) <= 1
        assert "GPU" not in ddctl("top", f"--job={job_id(job)}", "--once")
        end(job)


@pytest.mark.parametrize("env", [{"DDRUN_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_top_without_nvml_or_gpus_has_no_column(gpus, env):
    with Job(*ONE, *SLEEP, env=gpus.env(BUSY, **env)) as job:
        (worker,) = top_of(job)
        assert worker["gpus"] == [] and worker["memory_bytes"] > 0
        assert "GPU" not in ddctl("top", f"--job={job_id(job)}", "--once")
        end(job)
