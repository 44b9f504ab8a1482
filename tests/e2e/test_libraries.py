"""OpenSSL, libmunge, libpmix and libcurl are loaded at run time; if one is missing, ddrun refuses only what needs it."""

import os
import shutil
import subprocess

import pytest

from support import BUILD, DDRUN, Job, built_with, clean_env, free_port, run, some_line


@pytest.fixture
def without(tmp_path):
    """Return without(NAME), which returns an environment where the library of this name cannot be loaded."""
    def environment(name):
        (tmp_path / name).write_bytes(b"")
        return {"LD_LIBRARY_PATH": str(tmp_path)}
    return environment


@pytest.mark.skipif(not built_with("MUNGE"), reason="ddrun was built without MUNGE (Debian: libmunge-dev)")
def test_without_libmunge_nodes_take_another_key(without, tmp_path):
    where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--nproc-per-node=1", "--log-level=info"]
    more = {"home": str(tmp_path), "env": clean_env(**without("libmunge.so.2"))}
    with Job(*where, "--node-rank=0", "true", **more) as first, Job(*where, "--node-rank=1", "true", **more) as other:
        assert (first.wait(), other.wait()) == (0, 0), first.err + other.err
        assert some_line(first.err, "key source: ", str(tmp_path)), first.err


@pytest.mark.skipif(not built_with("PMIX"), reason="ddrun was built without libpmix (Debian: libpmix-dev)")
def test_without_libpmix_pmix_is_refused_and_auto_does_without(without):
    env = without("libpmix.so.2")
    job = run("--mpi=pmix", "--nproc-per-node=1", "--no-python", "true", env=env)
    assert job.p.returncode == 2 and "error: --mpi=pmix needs libpmix: cannot load" in job.err and "tip: " in job.err, job.err
    job = run("--mpi=auto", "--nproc-per-node=1", "--no-python", "true", env=env)
    assert (job.p.returncode, job.err) == (0, "")


@pytest.mark.skipif(not built_with("CURL"), reason="ddrun was built without libcurl (Debian: libcurl4-openssl-dev)")
def test_without_libcurl_a_web_hook_is_refused(without):
    job = run("--notify=http://127.0.0.1:9/", "--nproc-per-node=1", "--no-python", "true", env=without("libcurl.so.4"))
    assert job.p.returncode == 2 and "error: --notify needs libcurl: cannot load" in job.err, job.err


@pytest.mark.skipif(not os.path.exists(f"{BUILD}/ddrun-openssl.so"), reason="OpenSSL is linked into ddrun")
def test_openssl_is_loaded_for_links_between_nodes_alone(tmp_path):
    """In a directory without the module, a job of one node runs."""
    for name in ("ddrun", "ddrund"):
        shutil.copy(f"{os.path.dirname(DDRUN)}/{name}", tmp_path)

    def ddrun(*arguments):
        return subprocess.run([tmp_path / "ddrun", *arguments], env=clean_env(), capture_output=True, text=True, timeout=60, check=False)

    alone = ddrun("--nproc-per-node=2", "echo", "ran")
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "ran\nran\n", "")
    two = ddrun("--simulate-nodes=2", "--nproc-per-node=1", "echo", "ran")
    assert (two.returncode, two.stdout) == (2, ""), two.stderr
    assert "error: cannot load OpenSSL: " in two.stderr and "ddrun-openssl.so" in two.stderr and "tip: " in two.stderr, two.stderr
