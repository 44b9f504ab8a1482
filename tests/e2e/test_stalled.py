"""File systems that hang: log files and temporary directories on a frozen one, as on a dead file server."""

import os
import signal
import subprocess
import sys

import pytest

from support import Job, marked, program, some_line, until

SIZE = 24 << 20


class Frozen:
    """A small ext4 on a loop device, which the test can freeze: processes that write there wait."""

    def __init__(self, folder):
        self.image, self.path, self.frozen = folder / "image", folder / "mnt", False
        self.path.mkdir()
        self.image.write_bytes(b"")
        os.truncate(self.image, SIZE)
        self._must("mkfs.ext4", "-q", str(self.image))
        self._must("mount", "-o", "loop", str(self.image), str(self.path))

    def _must(self, *argv):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{argv[0]} does not work here: {done.stderr.strip()}")

    def freeze(self):
        self._must("fsfreeze", "-f", str(self.path))
        self.frozen = True

    def thaw(self):
        self.frozen = False
        subprocess.run(["fsfreeze", "-u", str(self.path)], check=True)

    def end(self):
        if self.frozen:
            self.thaw()
        subprocess.run(["umount", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    frozen = Frozen(tmp_path)
    yield frozen
    frozen.end()


def is_frozen_in(pid):
    """True if the process waits for a frozen file system."""
    try:
        with open(f"/proc/{pid}/wchan") as f, open(f"/proc/{pid}/stat") as s:
            return s.read().rsplit(")", 1)[1].split()[0] == "D" or "freeze" in f.read()
    except OSError:  # it has ended
        return False


WRITES = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists("GO"):
    time.sleep(0.01)
for i in range(LINES):
    print(f"line {i} " + "x" * 90)
print("written", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("lines", [10, 30000])
def test_a_log_file_on_a_file_system_that_hangs_costs_no_node(disk, tmp_path, lines):
    """The file system hangs longer than the heartbeat: with little output the workers continue, with much they wait, and
    nothing is lost."""
    go = tmp_path / "go"
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--heartbeat=15s", "--tee=1", f"--log-dir={disk.path}/logs", "--max-restarts=0",
             sys.executable, "-c", WRITES.replace("LINES", str(lines)).replace("GO", str(go))) as job:
        job.line("ready")
        writers = until(lambda: len(p := job.processes("ddrun-writer")) == 2 and p, say="each node has a writer")
        disk.freeze()
        go.touch()
        until(lambda: all(is_frozen_in(w) for w in writers), say="the writers wait for the file system")
        with pytest.raises(subprocess.TimeoutExpired):
            job.p.wait(timeout=20)
        disk.thaw()
        assert job.wait() == 0, job.err
        assert "lost" not in job.err, job.err
        job.assert_nothing_left()
    assert job.err.count("written") == 2
    for folder in disk.path.glob("logs/*"):
        text = (folder / "attempt_0/0/stdout.log").read_text()
        assert text == "ready\n" + "".join(f"line {i} " + "x" * 90 + "\n" for i in range(lines))


@pytest.mark.parametrize("option", ["--tee=3", "--redirects=3"])
def test_a_round_begins_although_its_log_files_cannot_be_made_yet(disk, tmp_path, option):
    script = f"""
echo round $TORCHELASTIC_RESTART_COUNT
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
    touch {tmp_path}/ready.$RANK
    until [ -e {tmp_path}/go ]; do sleep 0.01; done
    exit 3
fi
touch {tmp_path}/again.$RANK"""
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--heartbeat=15s", option, f"--log-dir={disk.path}/logs", "--max-restarts=1",
             "sh", "-c", script) as job:
        until(lambda: len(list(tmp_path.glob("ready.*"))) == 2, say="both workers are there")
        logs = disk.path.glob  # a write in progress would delay the round's end until the thaw
        until(lambda: [f.read_text() for f in logs("logs/*/attempt_0/0/stdout.log")] == ["round 0\n"] * 2, say="their first lines")
        disk.freeze()
        (tmp_path / "go").touch()
        until(lambda: len(list(tmp_path.glob("again.*"))) == 2, say="both workers have been restarted")
        with pytest.raises(subprocess.TimeoutExpired):
            job.p.wait(timeout=1)
        disk.thaw()
        assert job.wait() == 0, job.err
        assert "file system" in job.err
        job.assert_nothing_left()
    for folder in disk.path.glob("logs/*"):
        for attempt in (0, 1):
            assert (folder / f"attempt_{attempt}/0/stdout.log").read_text() == f"round {attempt}\n"


@pytest.fixture
def hanging(tmp_path):
    """A file that no process can open: its server does not answer."""
    place = tmp_path / "hanging"
    place.mkdir()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and /dev/fuse")
    with subprocess.Popen([sys.executable, program("hanging_fs.py"), str(place)], stdout=subprocess.PIPE, text=True) as server:
        if server.stdout.readline() != "mounted\n":
            pytest.skip("FUSE does not work here")
        yield place / "file", server
        server.kill()
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_an_error_file_on_a_file_system_that_hangs_costs_no_node(hanging, tmp_path):
    file, server = hanging
    script = f"[ $RANK = 0 ] && exec sleep 600; ln -sf {file} $TORCHELASTIC_ERROR_FILE; exit 9"
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--shutdown-timeout=1s", f"--log-dir={tmp_path}/logs", "sh", "-c",
             script) as job:
        assert job.wait() == 9, job.err
        assert some_line(job.err, "rank 1 on sim2 failed (exit code 9)") and "lost" not in job.err, job.err
        server.kill()  # until then, the kernel ends no process that has tried to open the file
        until(lambda: not marked(job.mark), say="the end of all processes")
        job.assert_nothing_left()


def test_what_was_printed_is_in_the_file_though_the_agent_was_killed(disk, tmp_path):
    script = f"echo first; until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo last; sleep 600"
    with Job("--nproc-per-node=1", "--tee=1", f"--log-dir={disk.path}/logs", "sh", "-c", script) as job:
        job.line("first")
        disk.freeze()
        (tmp_path / "go").touch()
        job.line("last")
        for pid in job.agents():
            os.kill(pid, signal.SIGKILL)
        disk.thaw()
        assert job.wait() == 137
        job.assert_nothing_left()
    assert [f.read_text() for f in disk.path.glob("logs/*/attempt_0/0/stdout.log")] == ["first\nlast\n"]


def test_a_disk_that_hangs_while_it_is_checked_costs_no_node(disk, tmp_path):
    """The disk hangs longer than the heartbeat, but not longer than --health-timeout."""
    script = f"""
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
touch {tmp_path}/ready.$RANK
until [ -e {tmp_path}/go ]; do sleep 0.01; done
exit 3"""
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--heartbeat=15s", "--health=disk", "--max-restarts=1",
             "sh", "-c", script, tmp=str(disk.path)) as job:
        until(lambda: len(list(tmp_path.glob("ready.*"))) == 2, say="both workers are there")
        disk.freeze()
        (tmp_path / "go").touch()
        with pytest.raises(subprocess.TimeoutExpired):
            job.p.wait(timeout=20)
        disk.thaw()
        assert job.wait() == 0, job.err
        assert "lost" not in job.err, job.err
        job.assert_nothing_left()


@pytest.mark.parametrize("check", ["disk", "storage"])
def test_a_disk_that_hangs_for_good_makes_its_node_unfit(disk, tmp_path, check):
    """A process that waits in the kernel for the disk ignores signals until that wait ends; ddrun does not wait for the
    process."""
    disk.freeze()
    health, tmp = ("disk", disk.path) if check == "disk" else (f"storage={disk.path}", tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    with Job("--nproc-per-node=1", f"--health={health}", "--health-timeout=500ms", "true", tmp=str(tmp)) as job:
        said = ""
        while not some_line(said, f"file in {disk.path}", "did not respond within 0.5 s", "--health"):
            line = job.p.stderr.readline()
            assert line, said
            said += line
        held = [pid for pid in marked(job.mark) if is_frozen_in(pid)]
        disk.thaw()
        assert job.wait() == 1
        until(lambda: not set(held) & set(marked(job.mark)), say="what the disk held has ended")
        job.assert_nothing_left()
