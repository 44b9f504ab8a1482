"""With NVIDIA GPUs: NCCL between the ranks of several simulated nodes, which may share one GPU."""

import glob
import os
import signal
import subprocess

import pytest

from support import BUILD, HERE, PYTHON, Job, clean_env, has_module, json_lines, lines_with, marked, program, run, until

TOP = os.path.dirname(os.path.dirname(HERE))


def gpu_processes():
    """Return the pids that the driver lists as processes with memory on a GPU; None without a driver."""
    try:
        listed = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return {int(pid) for pid in listed.stdout.split()}


def cuda_of(module, expression):
    return has_module(PYTHON, module) and subprocess.run([PYTHON, "-c", f"import {module}, sys; sys.exit(not ({expression}))"],
                                                         capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(gpu_processes() is None, reason="no NVIDIA GPU")


@pytest.fixture(scope="module", autouse=True)
def torch_with_gpu():
    if not cuda_of("torch", "torch.cuda.is_available()"):
        pytest.skip("PyTorch finds no GPU")


@pytest.mark.parametrize("nodes", [2, 4])
def test_simulated_nodes_are_hosts_of_their_own_for_nccl(nodes):
    job = run(f"--simulate-nodes={nodes}", "--nproc-per-node=1", program("nccl_ranks.py"))
    assert job.p.returncode == 0, job.err
    ranks = json_lines(job.out)
    assert sorted(r["rank"] for r in ranks) == list(range(nodes)) and len({r["host"] for r in ranks}) == nodes
    assert {r["sum"] for r in ranks} == {nodes * (nodes + 1) / 2}


def test_a_rank_that_fails_is_restarted_with_all_others():
    job = run("--simulate-nodes=4", "--nproc-per-node=1", "--max-restarts=1", program("nccl_ranks.py"), "exit")
    assert job.p.returncode == 0 and lines_with(job.err, "rank 3", "exit code 3", "restarting"), job.err
    assert sorted((r["round"], r["rank"]) for r in json_lines(job.out)) == [(i, rank) for i in (0, 1) for rank in range(4)]


@pytest.mark.parametrize("fate, wanted", [("memory", "CUDA out of memory"), ("assert", "assertion failed in a GPU kernel")])
def test_the_report_names_the_rank_whose_gpu_failed(fate, wanted):
    job = run("--simulate-nodes=2", "--nproc-per-node=1", program("nccl_ranks.py"), fate)
    assert job.p.returncode != 0 and lines_with(job.err, "error: rank 1 on sim2") and wanted in job.err, job.err


def test_two_ranks_of_a_node_on_one_gpu_are_reported():
    job = run("--nproc-per-node=2", program("nccl_ranks.py"), env=clean_env(CUDA_VISIBLE_DEVICES="0"))
    assert job.p.returncode == 1 and lines_with(job.err, "cause:", "same GPU"), job.err


@pytest.mark.parametrize("victim", ["agent", "guardian"])
def test_no_process_stays_on_the_gpu(victim):
    with Job("--nproc-per-node=1", program("nccl_ranks.py"), "sleep", env=clean_env(CUDA_VISIBLE_DEVICES="0")) as job:
        job.line('"sum"')
        mine = set(job.workers()) & gpu_processes()
        assert mine
        os.kill(job.agents()[0] if victim == "agent" else job.p.pid, signal.SIGKILL)
        job.wait()
        until(lambda: not job.workers() and not mine & gpu_processes(), say="the release of the GPU")
        until(lambda: not marked(job.mark), say="the end of all processes")
        job.assert_nothing_left()


def test_the_example_of_libddrun_sums_over_nodes(tmp_path):
    headers = [os.path.dirname(path) for place in (os.environ.get("CUDA_HOME", "/usr/local/cuda"), *nccl_places())
               for name in ("cuda_runtime.h", "nccl.h") for path in glob.glob(f"{place}/include/{name}")]
    libraries = [os.path.dirname(path) for place in (os.environ.get("CUDA_HOME", "/usr/local/cuda"), *nccl_places())
                 for name in ("lib64/libcudart.so", "lib/libnccl.so.2") for path in glob.glob(f"{place}/{name}")]
    if len(headers) < 2 or len(libraries) < 2:
        pytest.skip("no headers and libraries of CUDA and NCCL")
    subprocess.run(["cc", f"{TOP}/examples/nccl_allreduce.c", f"-I{TOP}/include", *(f"-I{place}" for place in headers), f"-L{BUILD}", "-lddrun",
                    *(f"-L{place}" for place in libraries), "-lcudart", "-l:libnccl.so.2", "-ldl", "-o", tmp_path / "nccl_allreduce"], check=True)
    env = clean_env(LD_LIBRARY_PATH=":".join([BUILD, *libraries, os.environ.get("LD_LIBRARY_PATH", "")]))
    job = run("--simulate-nodes=3", "--nproc-per-node=1", str(tmp_path / "nccl_allreduce"), env=env)
    assert job.p.returncode == 0 and "3 ranks" in job.out, job.out + job.err


def nccl_places():
    found = subprocess.run([PYTHON, "-c", "import nvidia.nccl; print(*nvidia.nccl.__path__, sep='\\n')"], capture_output=True, text=True, check=False)
    return found.stdout.splitlines()


def test_jax_sums_over_nodes():
    if not cuda_of("jax", "jax.default_backend() == 'gpu'"):
        pytest.skip("JAX finds no GPU")
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--framework=jax", program("jax_ranks.py"), env=clean_env(XLA_PYTHON_CLIENT_PREALLOCATE="false"))
    assert job.p.returncode == 0, job.err
    assert sorted((r["rank"], r["sum"], r["platform"]) for r in json_lines(job.out)) == [(0, 3.0, "gpu"), (1, 3.0, "gpu")]
