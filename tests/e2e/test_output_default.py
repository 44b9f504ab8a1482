"""Output without any option: whole lines from all ranks, a terminal for rank 0, and the exception in every report."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

from support import DDRUN, LIMIT, PYTHON, clean_env, run
from test_terminal import Terminal, python

PIECES = "import os\nfor i in range({n}):\n    for piece in (b'rank ', os.environb[b'RANK'], b' line %d ' % i, b'of {stream}', b'\\n'):\n        os.write({stream}, piece)\n"
WHOLE = re.compile(r"rank (\d+) line (\d+) of ([12])")


def seen(text):
    """Return the line numbers of each (rank, stream) in order; fail on a torn line."""
    found = {}
    for line in text.splitlines():
        whole = WHOLE.fullmatch(line)
        assert whole, f"torn: {line!r}"
        found.setdefault((int(whole[1]), int(whole[3])), []).append(int(whole[2]))
    return found


@pytest.mark.parametrize("where", [["--nproc-per-node=4"], ["--simulate-nodes=2", "--nproc-per-node=2"], ["--simulate-nodes=4", "--nproc-per-node=1"]])
@pytest.mark.parametrize("to", ["pipe", "file"])
def test_lines_written_in_pieces_are_never_torn(tmp_path, where, to):
    n = 300
    code = PIECES.format(n=n, stream=1) + PIECES.format(n=n, stream=2)
    with open(tmp_path / "log", "wb") as log:
        done = subprocess.run([DDRUN, *where, *python(code)], env=clean_env(), timeout=LIMIT, check=False,
                              stdout=log if to == "file" else subprocess.PIPE, stderr=subprocess.STDOUT)
    text = (tmp_path / "log").read_bytes() if to == "file" else done.stdout
    assert done.returncode == 0, text[-1000:]
    assert seen(text.decode()) == {(r, s): list(range(n)) for r in range(4) for s in (1, 2)}


def test_stdout_and_stderr_stay_apart():
    job = run("--nproc-per-node=2", *python("import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')"))
    assert (job.p.returncode, job.out, job.err) == (0, "out\nout\n", "err\nerr\n")


def test_what_is_written_right_before_a_crash_is_not_lost():
    code = ("import os, signal\nfor i in range(2000):\n    os.write(1, b'line %d of rank %d\\n' % (i, int(os.environ['RANK'])))\n"
            "if os.environ['RANK'] == '1':\n    os.write(1, b'last words')\n    os.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()\n")
    job = run("--nproc-per-node=2", *python(code))
    assert job.p.returncode == 137
    lines = job.out.splitlines()
    assert [line for line in lines if line.endswith("rank 1")] == [f"line {i} of rank 1" for i in range(2000)]
    assert "last words" in lines


def test_a_long_line_goes_on_in_pieces():
    job = run("--nproc-per-node=2", *python("import sys; sys.stdout.write('x' * 2500000 + '\\n')"))
    assert job.out.count("x") == 5000000
    assert sorted(len(line) for line in job.out.splitlines()) == [402848] * 2 + [1 << 20] * 4


@pytest.mark.parametrize("where", [["--nproc-per-node=1"], ["--nproc-per-node=3"], ["--simulate-nodes=2", "--nproc-per-node=1"]])
def test_the_report_has_the_exception_without_any_option(where):
    code = "import os, time\nif int(os.environ['RANK']) == int(os.environ['WORLD_SIZE']) - 1:\n    raise ImportError('no such brick')\ntime.sleep(1000)\n"
    job = run(*where, *python(code))
    report = [line for line in job.err.splitlines() if line.startswith("ddrun")]
    assert job.p.returncode == 1
    assert any("failed: ImportError: no such brick (exit code 1)" in line for line in report), job.err
    assert "Python environment" in job.err  # the tip


def test_the_report_has_the_last_lines_where_nothing_looks_like_an_exception():
    job = run("--nproc-per-node=2", "--no-python", "sh", "-c", 'test $RANK = 0 && exec sleep 1000; echo "what it was doing"; echo broken >&2; exit 7')
    assert job.p.returncode == 7
    assert re.search(r"^    broken$", job.err, re.M), job.err


def test_of_a_rank_that_writes_to_stdout_only_the_report_has_that():
    job = run("--nproc-per-node=2", "--no-python", "sh", "-c", "test $RANK = 0 && exec sleep 1000; echo on stdout; exit 7")
    assert re.search(r"^    on stdout$", job.err, re.M), job.err


def test_raw_output_is_inherited(tmp_path):
    code = ("import os\nassert os.path.samestat(os.fstat(1), os.stat(os.environ['LOG'])) and os.fstat(2).st_ino == os.fstat(1).st_ino\n"
            "if os.environ['RANK'] == '1':\n    raise ValueError('seen on the way')\n")
    with open(tmp_path / "log", "wb") as log:
        done = subprocess.run([DDRUN, "--output=raw", "--nproc-per-node=2", *python(code)], env=clean_env(LOG=str(tmp_path / "log")),
                              stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    text = (tmp_path / "log").read_text()
    assert done.returncode == 1 and "AssertionError" not in text, text
    assert "ValueError: seen on the way\n" in text and not re.search("error: .*ValueError", text)


def test_labels_by_either_option():
    for option in ("--output=labels", "--label"):
        job = run(option, "--nproc-per-node=2", "--no-python", "echo", "x")
        assert sorted(job.out.splitlines()) == ["[0]: x", "[1]: x"]


@pytest.mark.parametrize("args, says", [(["--output=out.%j"], "--log-dir=DIR"), (["--output=some"], "labels"),
                                        (["--output=raw", "--label"], "--label")])
def test_what_is_no_kind_of_output_is_refused(args, says):
    job = run(*args, "true")
    assert job.p.returncode == 2 and says in job.err and len(job.err.strip().splitlines()) <= 2


def test_kill_9_of_the_agent_leaves_nothing():
    with Terminal("--nproc-per-node=2", *python("import time\nprint('ready')\ntime.sleep(1000)")) as t:
        t.expect("ready", times=2)
        assert t.mode() == t.before
        os.kill(t.guardian_and_agent()[1], signal.SIGKILL)
        assert t.wait() == 137
        assert t.mode() == t.before


def test_a_slow_reader_makes_the_workers_wait_and_loses_nothing():
    code = "import os\nfor i in range(20000):\n    os.write(1, b'%05d' % i + b'x' * 200 + b'\\n')\nos.write(2, b'done\\n')\n"
    p = subprocess.Popen([DDRUN, "--nproc-per-node=2", *python(code)], env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        first = p.stdout.read(65536)
        assert not select.select([p.stderr], [], [], 0.5)[0]  # no rank is done: about 8 MiB are to come
        rest = p.stdout.read()
        assert p.wait(LIMIT) == 0
        assert len((first + rest).splitlines()) == 40000 and p.stderr.read() == b"done\ndone\n"
    finally:
        p.kill()
        p.wait()


# ---- on a terminal -----------------------------------------------------------------------------

def test_rank_0_keeps_a_terminal_of_the_same_size_and_the_others_have_pipes():
    code = ("import os, sys, time\nr = os.environ['RANK']\n"
            "tty = [int(f.isatty()) for f in (sys.stdin, sys.stdout, sys.stderr)]\n"
            "print(f'{r} tty {tty}')\n"  # at once: a line of the other rank may come between two pieces
            "size = lambda: os.get_terminal_size(2).columns\n"
            "if r == '0':\n    print(f'first {size()}')\n    while size() != 123:\n        time.sleep(0.01)\n    print(f'then {size()}')\n")
    with Terminal("--nproc-per-node=2", "--no-python", PYTHON, "-c", code) as t:
        fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        t.expect("first")
        fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 123, 0, 0))
        assert t.wait() == 0, t.seen
        assert "0 tty [1, 1, 1]" in t.seen and "1 tty [0, 0, 0]" in t.seen and "then 123" in t.seen
        assert "first 100" in t.seen or "first 123" in t.seen
        assert t.mode() == t.before


def test_lines_stay_whole_on_a_terminal_that_nobody_sits_at(tmp_path):
    """srun --unbuffered gives each task a pseudo-terminal in place of a pipe, which is not that of its session."""
    script = f"""
cd {tmp_path}
if [ $RANK = 0 ]; then printf half; : >half; until [ -e whole ]; do sleep 0.01; done; echo ' and half'
else until [ -e half ]; do sleep 0.01; done; echo whole; : >whole; fi"""
    ours, theirs = os.openpty()
    with subprocess.Popen([DDRUN, "--nproc-per-node=2", "--no-python", "sh", "-c", script], env=clean_env(), stdin=subprocess.DEVNULL, stdout=theirs,
                          start_new_session=True) as p:
        os.close(theirs)
        seen_so_far = b""
        while seen_so_far.count(b"\n") < 2:
            assert select.select([ours], [], [], LIMIT)[0], seen_so_far
            seen_so_far += os.read(ours, 4096)
        assert p.wait(LIMIT) == 0
    os.close(ours)
    assert sorted(seen_so_far.split(b"\r\n")[:-1]) == [b"half and half", b"whole"]


def test_a_rank_without_its_terminal_is_not_late():
    code = "import os, time\nif os.environ['RANK'] == '1':\n    print('at once')\ntime.sleep(1000)"
    with Terminal("--nproc-per-node=2", "--no-python", PYTHON, "-c", code) as t:
        t.expect("at once")
        t.type("\x03")
        t.wait()


def test_ctrl_c_is_ddruns():
    with Terminal("--nproc-per-node=2", *python("import time\nprint('ready')\ntime.sleep(1000)")) as t:
        t.expect("ready", times=2)
        t.type("\x03")
        assert t.wait() == 130, t.seen
        assert t.mode() == t.before


def test_pdb_and_single_keys_reach_rank_0():
    code = ("import os, sys, tty\nif os.environ['RANK'] == '0':\n    breakpoint()\n    tty.setcbreak(0)\n    print('key?', flush=True)\n"
            "    print('got', repr(os.read(0, 1)))\n")
    with Terminal("--nproc-per-node=2", *python(code)) as t:
        t.expect("(Pdb)")
        t.type("p 6 * 7\n")
        t.expect("42")
        t.type("c\n")
        t.expect("key?")
        t.type("k")
        assert t.wait() == 0, t.seen
        assert "got b'k'" in t.seen


def test_a_program_that_reads_keys_from_its_stdout_is_refused_at_once():
    """A pager that finds no /dev/tty does so. The worker's terminal takes output only, and has no keys to read."""
    code = "import os\ntry:\n    os.read(1, 1)\nexcept OSError as e:\n    print('refused', e.errno)\ntry:\n    open('/dev/tty')\nexcept OSError as e:\n    print('none', e.errno)\n"
    with Terminal(*python(code)) as t:
        assert t.wait() == 0, t.seen
        assert "refused 9" in t.seen and "none 6" in t.seen


def test_lines_of_others_begin_on_a_line_of_their_own_beside_a_progress_bar(tmp_path):
    """Each rank writes after the terminal has shown the text before: the agent reads two ranks in any order."""
    code = ("import os, sys\n"
            "def wait(for_):\n    open(os.environ['DIR'] + '/' + for_).close()\n"
            "if os.environ['RANK'] == '0':\n    sys.stderr.write('\\r 50%|#####')\n    wait('line')\n    sys.stderr.write('\\r 60%|######\\n')\n"
            "else:\n    wait('bar')\n    print('step 1 of rank 1', flush=True)\n")
    for name in ("bar", "line"):
        os.mkfifo(tmp_path / name)
    with Terminal("--nproc-per-node=2", "-x", f"DIR={tmp_path}", *python(code)) as t:
        for name, shown in (("bar", "50%|#####"), ("line", "rank 1\r\n")):
            t.expect(shown)
            open(tmp_path / name, "w", encoding="ascii").close()
        assert t.wait() == 0, t.seen
        assert "\r 50%|#####\r\nstep 1 of rank 1\r\n\r 60%|######\r\n" in t.seen


def test_stderr_alone_may_be_the_terminal(tmp_path):
    """As in "ddrun train.py >log": the progress bar needs stderr."""
    code = "import os, sys\nprint(os.environ['RANK'], 'out', int(sys.stdout.isatty()))\nprint(os.environ['RANK'], 'err', int(sys.stderr.isatty()), file=sys.stderr)"
    script = f"exec {DDRUN} --nproc-per-node=2 --no-python {PYTHON} -c \"$CODE\" >{tmp_path}/log"
    with Terminal("--output=raw", "-x", f"CODE={code}", "--no-python", "sh", "-c", script, size=(24, 80)) as t:
        assert t.wait() == 0, t.seen
        assert "0 err 1" in t.seen and "1 err 0" in t.seen
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["0 out 0", "1 out 0"]


def test_on_a_terminal_too_the_report_has_the_exception():
    code = "import os, time\nif os.environ['RANK'] == '0':\n    raise ValueError('loss is nan')\ntime.sleep(1000)"
    with Terminal("--nproc-per-node=2", *python(code)) as t:
        assert t.wait() == 1
        assert "failed: ValueError: loss is nan (exit code 1)" in t.seen
