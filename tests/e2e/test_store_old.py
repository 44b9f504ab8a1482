"""Clients of PyTorch before 2.2, which number their operations differently and do not announce it: a real 1.13, as Debian
packages it (python3-torch, a large install; its vectors are in tests/unit/test_store_c10d.c)."""

import json
import subprocess

import pytest

from support import LIMIT, clean_env, program

STORES = ("direct", "relay")
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def torch_113():
    """Return the system's Python, which has PyTorch 1.13."""
    found = subprocess.run([SYSTEM_PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
    if not found.stdout.startswith("1.13"):
        pytest.skip("no PyTorch 1.13 here (Debian: python3-torch)")
    return SYSTEM_PYTHON


@pytest.mark.large
def test_a_gloo_group_of_torch_113_meets_here(torch_113, new_server):
    server = new_server("--old-clients=1.13")
    ranks = [subprocess.Popen([torch_113, program("old_torch.py"), "127.0.0.1", str(server.port), str(rank)], env=clean_env(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    seen = [json.loads(p.communicate(timeout=LIMIT)[0].splitlines()[-1]) for p in ranks]
    assert [s["sum"] for s in seen] == [3.0, 3.0]
    first = seen[0]
    assert (first["get"], first["add"], first["keys"], first["delete"], first["cas"]) == (
        "value", [5, -2], 2, [True, False], ["a", "b", "b"])


@pytest.mark.large
def test_torch_113_is_turned_away_where_it_is_not_served(torch_113, new_server):
    server = new_server()
    p = subprocess.run([torch_113, program("old_torch.py"), "127.0.0.1", str(server.port), "0"], env=clean_env(), timeout=LIMIT,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert p.returncode != 0 and "sum" not in p.stdout
