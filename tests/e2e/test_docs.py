"""The commands of the pages work as written: every block "sh" of docs/*.md that is not marked, in order, in one directory."""

import glob
import json
import os
import re
import subprocess

import pytest

from support import BUILD, DDRUN, HERE, LIMIT, PYTHON, built_with, clean_env, kill_marked

TOP = os.path.abspath(os.path.join(HERE, "..", ".."))
BLOCK = re.compile(r"^(?:<!-- (.*?) -->\n)?```sh\n(.*?)^```$", re.M | re.S)

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def blocks(page):
    """Return [(commands, exit code)] of a page."""
    with open(page, encoding="utf-8") as f:
        found = BLOCK.findall(f.read())
    return [(commands, int(mark.removeprefix("exit code: ") or "0")) for mark, commands in found if not mark.startswith("not run: ")]


PAGES = {os.path.basename(page): blocks(page) for page in sorted(glob.glob(os.path.join(TOP, "docs", "*.md")))}


def steps(page, directory):
    """Run the blocks of a page one after the other; yield each with what it printed."""
    mark = f"docs-{os.getpid()}-{page}"
    environment = clean_env(PATH=f"{BUILD}:{os.environ['PATH']}", DDRUN_TEST_MARK=mark, DDRUN_STACKS="auto")
    for commands, code in PAGES[page]:
        try:
            done = subprocess.run(["bash", "-e", "-c", commands], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
        finally:
            kill_marked(mark)
        assert done.returncode == code, f"{page}:\n{commands}\n{done.stdout}"
        yield commands, done.stdout


@pytest.mark.parametrize("page", [page for page, found in PAGES.items() if found and page != "tutorial.md"] or [None])
def test_commands_of_a_page_work(page, tmp_path):
    if page is None:
        pytest.skip("no other page than the tutorial has blocks of commands")
    for _ in steps(page, tmp_path):
        pass


def test_the_tutorial_works_as_written_and_shows_what_it_says(tmp_path):
    shown = [text for _, text in steps("tutorial.md", tmp_path)]
    run, dry, broken, found, hung, again, late, restarted, times = shown
    assert run.count("begins, attempt 0") == 4 and run.count("is done") == 4
    assert "Would start 2 workers on sim2 (ranks 2-3 of 4)" in dry and "begins" not in dry
    with open(os.path.join(TOP, "docs", "tutorial.md"), encoding="utf-8") as f:
        report, of_hang = re.findall(r"^```text\n(.*?)^```$", f.read(), re.M | re.S)
    assert report.splitlines()[0] in broken, f"the page shows\n{report}ddrun printed\n{broken}"
    assert "complete stderr: logs/" in broken and "line 9, in <module>" in broken
    assert "/1/stderr.log" in found and "ValueError: loss is nan" in found
    for line in of_hang.splitlines():
        assert line in again or re.search(r"^job |after the start|had ended|exited with 0", line), f"ddctl report printed no '{line}':\n{again}"
    assert "rank 3 on sim2: <module>, train.py:12" in hung and "--timeout of 2 s reached" in late
    assert "restarting (1 of 1)" in restarted and restarted.count("begins, attempt 1") == 4 and restarted.count("is done") >= 4
    assert "first-output" in times and "round 0:" in times and "rank 3 on sim2 failed" in times and "round 1:" in times
    assert sorted(os.listdir(tmp_path)) == ["logs", "report.json", "timeline.json", "train.py"]


def page_for_administrators():
    with open(os.path.join(TOP, "docs", "administrators.md"), encoding="utf-8") as f:
        return f.read()


def table_of(program):
    """Return the options of a program and of its commands, and the names of the commands."""
    done = subprocess.run([os.path.join(BUILD, program), "--dump-options=json"], stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    table = json.loads(done.stdout)
    commands = table.get("commands", [])
    return {option["name"] for part in [table, *commands] for option in part["options"]}, {part["program"] for part in commands}


def test_options_and_commands_on_the_page_for_administrators_exist():
    """Options of configure, srun and node_exporter aside."""
    text = page_for_administrators()
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text)) - {"prefix", "sysconfdir", "ntasks-per-node", "collector"}
    (of_ddrun, _), (of_ddctl, commands) = table_of("ddrun"), table_of("ddctl")
    assert len(named) > 15 and not named - of_ddrun - of_ddctl
    assert not set(re.findall(r"\bddctl [a-z]+", text)) - commands


@pytest.mark.skipif(not built_with("TOML"), reason="configure has not found toml++ (Debian: libtomlplusplus-dev)")
@pytest.mark.parametrize("profile", sorted(glob.glob(os.path.join(TOP, "contrib", "profiles", "*.toml"))), ids=os.path.basename)
def test_the_settings_on_the_page_for_administrators_are_accepted(tmp_path, profile):
    text = re.search(r"^```toml\n(.*?)^```$", page_for_administrators(), re.M | re.S).group(1)
    with open(profile, encoding="utf-8") as f:
        (tmp_path / "fabric.toml").write_text(f.read())
    (tmp_path / "ddrun.toml").write_text(text)
    done = subprocess.run([DDRUN, "--show-config=json", "true"], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, check=False, env=clean_env(XDG_CONFIG_HOME=str(tmp_path), SLURMD_NODENAME="gpu007", PBS_QUEUE="long"))
    assert done.returncode == 0 and "NCCL_SOCKET_IFNAME" in done.stdout and '"5/24h"' in done.stdout and "gpu,ib,shm" in done.stdout, done.stdout


def test_the_pages_are_found():
    assert len(PAGES) > 20 and len(PAGES["tutorial.md"]) == 9 and PYTHON
