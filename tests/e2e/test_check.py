"""contrib/check: what it prints when a step or a test fails, which must be enough where a log keeps only its end."""

import os
import shutil
import subprocess
import sys

import pytest

from support import HERE, LIMIT

TOP = os.path.join(HERE, "..", "..")
with_shellcheck = pytest.mark.skipif(not shutil.which("shellcheck") or not shutil.which("git"),
                                     reason="no shellcheck or git on this machine (Debian: shellcheck git)")
FAULTY = "#!/bin/bash\necho $1\n"  # unquoted


@pytest.fixture
def tree(tmp_path):
    """Return a small git checkout with contrib/check."""
    os.mkdir(tmp_path / "contrib")
    for name in ("check", "common.sh", "pytest"):
        shutil.copy(os.path.join(TOP, "contrib", name), tmp_path / "contrib" / name)
    return tmp_path


def check(tree, *arguments, **env):
    subprocess.run("git init -q . && git add .", shell=True, cwd=tree, check=True)
    return subprocess.run([tree / "contrib" / "check", *arguments], cwd=tree, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT, check=False)


@with_shellcheck
def test_the_last_lines_name_the_failed_step_and_what_it_printed(tree):
    (tree / "faulty").write_text(FAULTY)
    done = check(tree, "shellcheck")
    shown = done.stdout.partition("=== shellcheck")[2].splitlines()
    assert done.returncode == 1 and any("SC2086" in line for line in shown), done.stdout
    assert [line for line in shown if not line.startswith("all of it")][-2:] == ["FAILED: step shellcheck", "0 passed, 1 failed, 0 skipped"]


@with_shellcheck
def test_an_example_in_a_document_is_no_script(tree):
    (tree / "page.md").write_text(FAULTY)
    (tree / "program.py").write_text(f'"""A script:\n\n{FAULTY}"""\n')
    done = check(tree, "shellcheck")
    assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout


def test_pytest_writes_the_end_of_each_failure_to_the_file_that_check_names(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef bed():\n    raise OSError('no bed')\n"
        "def test_good():\n    pass\n"
        "def test_bed(bed):\n    pass\n"
        "def test_bad():\n    for i in range(1000):\n        print('line', i)\n    assert 6 * 7 == 41\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest", "--rootdir", tmp_path, "test_it.py"],
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.path.join(TOP, "tests"), "DDRUN_FAILURES": str(tmp_path / "failures")},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = (tmp_path / "failures").read_text().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["FAILED test_it.py::test_bed", "FAILED test_it.py::test_bad"]
    text = "\n".join(lines)
    assert "assert (6 * 7) == 41" in text and "line 999" in text and "OSError: no bed" in text and "test_good" not in text
    assert len(lines) < 150
