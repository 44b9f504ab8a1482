"""The commands of the pages work as written: every block "sh" of docs/*.md that is not marked, in order, in one directory."""

import glob
import os
import re
import subprocess

import pytest

from support import BUILD, DDRUN, HERE, LIMIT, PYTHON, clean_env, kill_marked

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
    environment = clean_env(PATH=f"{BUILD}:{os.environ['PATH']}", DDRUN_TEST_MARK=mark)
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
    run, dry, broken, found, restarted, times = shown
    assert run.count("begins, attempt 0") == 4 and run.count("is done") == 4
    assert "Would start 2 workers on sim2 (ranks 2-3 of 4)" in dry and "begins" not in dry
    with open(os.path.join(TOP, "docs", "tutorial.md"), encoding="utf-8") as f:
        report = re.search(r"^```text\n(.*?)^```$", f.read(), re.M | re.S).group(1)
    assert report.splitlines()[0] in broken, f"the page shows\n{report}ddrun printed\n{broken}"
    assert "complete stderr: logs/" in broken and "line 9, in <module>" in broken
    assert "/1/stderr.log" in found and "ValueError: loss is nan" in found
    assert "restarting (1 of 1)" in restarted and restarted.count("begins, attempt 1") == 4 and restarted.count("is done") >= 4
    assert "first-output" in times and "round 0:" in times and "rank 3 on sim2 failed" in times and "round 1:" in times
    assert sorted(os.listdir(tmp_path)) == ["logs", "timeline.json", "train.py"]


def test_the_pages_are_found():
    assert len(PAGES) > 20 and len(PAGES["tutorial.md"]) == 6 and PYTHON
