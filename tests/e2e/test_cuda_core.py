"""--on-hang=cuda-core: CUDA core dumps of hung workers. CUDA needs GPUs, so the workers make the driver's named pipe, and write the
dumps (programs/cuda_core_worker.py)."""

import json

import pytest

from support import Job, clean_env, program, run, some_line, until


def options(tmp_path):
    return ["--on-hang=cuda-core", "--hang-timeout=15s", "--stacks=on-hang", "--stacks-timeout=60s", "--shutdown-timeout=2s",
            f"--log-dir={tmp_path / 'logs'}", f"--report={tmp_path / 'report.json'}"]


def hang(tmp_path, how, *where):
    return run(*options(tmp_path), *where, program("cuda_core_worker.py"), how)


def warnings(tmp_path):
    with open(tmp_path / "report.json", encoding="utf-8") as f:
        return json.load(f)["warnings"]


@pytest.mark.parametrize("where", [["--nproc-per-node=2"], ["--simulate-nodes=2", "--nproc-per-node=1"]])
@pytest.mark.parametrize("how", ["dumps", "slow"])
def test_the_report_names_the_complete_dumps_of_all_workers(where, how, tmp_path):
    job = hang(tmp_path, how, *where)
    assert job.p.returncode in (134, 137), job.err
    cores = sorted((tmp_path / "logs").rglob("cuda_core.*"))
    assert len(cores) == 2 and all(core.read_bytes() == b"\x7fELFend\n" for core in cores), job.err
    texts = [w["text"] for w in warnings(tmp_path)]
    for core in cores:
        assert [t for t in texts if t.endswith(f"8 bytes): {core}") and t.startswith("CUDA core dump of rank ")], texts
        assert some_line(job.err, f"8 bytes): {core}")


def test_a_process_that_ends_in_mid_dump_has_no_complete_dump(tmp_path):
    job = hang(tmp_path, "dies", "--nproc-per-node=1")
    assert job.p.returncode in (134, 137), job.err
    core, = (tmp_path / "logs").rglob("cuda_core.*")
    texts = [w["text"] for w in warnings(tmp_path)]
    assert texts == [f"CUDA core dump of rank 0 (pid {core.suffix[1:]}, 4 bytes, the process has ended): {core}"], job.err


def test_a_stop_in_mid_dump_is_reported(tmp_path):
    with Job(*options(tmp_path), "--nproc-per-node=1", program("cuda_core_worker.py"), "endless") as job:
        until(lambda: [c for c in (tmp_path / "logs").rglob("cuda_core.*") if c.stat().st_size > 0])
        job.p.terminate()
        job.wait()
        assert some_line(job.err, "CUDA core dumps of this node may be incomplete: the workers ended"), job.err
        assert [w["text"] for w in warnings(tmp_path) if "may be incomplete" in w["text"]]
        job.assert_nothing_left()


@pytest.mark.parametrize("how", ["link", "file"])
def test_only_named_pipes_are_written_to(how, tmp_path):
    job = hang(tmp_path, how, "--nproc-per-node=1")
    assert job.p.returncode in (134, 137), job.err
    assert some_line(job.err, "no worker has a pipe of CUDA's driver"), job.err
    assert not list((tmp_path / "logs").rglob("cuda_core.*")) and warnings(tmp_path) == []


def test_a_log_directory_is_needed():
    job = run("--nproc-per-node=1", "--on-hang=cuda-core", "--hang-timeout=1h", "true")
    assert job.p.returncode == 2 and some_line(job.err, "--on-hang=cuda-core needs --log-dir")


def test_nodes_wait_for_each_other(tmp_path):
    job = run("--nproc-per-node=1", "--on-hang=cuda-core", "--hang-timeout=1h", f"--log-dir={tmp_path}", "--stacks=off", "true")
    assert job.p.returncode == 2 and some_line(job.err, "--on-hang=cuda-core and --stacks=off are mutually exclusive"), job.err


def test_other_jobs_have_no_variables_of_cuda(tmp_path):
    job = run("--nproc-per-node=1", "--on-hang=true", "--hang-timeout=1h", f"--log-dir={tmp_path}", "sh", "-c",
              "echo ${CUDA_COREDUMP_PIPE-none}", env=clean_env())
    assert job.p.returncode == 0, job.err
    assert job.out.split()[-1] == "none", job.out + job.err
