"""ddctl web: who gets the page and the state of the job, what the state has, and what a real browser draws of it."""

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from chromium import CHROMIUM, Browser
from support import ATTACKER, LIMIT, PYTHON, SYSTEM_PYTHON, as_user, clean_env, parent, until
from test_ddctl_job import DDCTL, RANK_IS_READY, Running, ddctl
from test_metrics import STORE_WORKER
from test_steps import Training

MARKUP = "<script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
# Rank 1 fails once with a reason that is HTML; then all ranks wait for the file $1.
FAILS_WITH_MARKUP = (RANK_IS_READY + 'if [ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ]; then\n'
                     f"cat >$TORCHELASTIC_ERROR_FILE <<'END'\n{json.dumps({'message': 'ValueError: ' + MARKUP})}\nEND\nexit 3; fi\n"
                     'until [ -e "$1" ]; do sleep 0.05; done\n')
FETCH = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).status)
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode().strip())
"""
REQUEST_S = 30  # limit of ddctl web for a silent connection
CONNECT = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(200)]
print("ready", flush=True)
sys.stdin.read()
"""


class Page:
    """A running ddctl web."""

    def __init__(self, job, *options):
        self.p = subprocess.Popen([DDCTL, "web", f"--job={job.name}", *options], env=clean_env(), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.p.stdout.readline().strip()
        m = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32})", self.url)
        assert m, self.url + self.p.stderr.read()
        self.port, self.token = int(m.group(1)), m.group(2)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.p.kill()
        self.p.communicate()

    def get(self, path="/", token="own", headers=None, method="GET", host="127.0.0.1"):
        """The status, the headers and the text of the reply."""
        query = {"own": f"?token={self.token}", None: ""}.get(token, f"?token={token}")
        r = urllib.request.Request(f"http://{host}:{self.port}{path}{query}", headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(r, timeout=LIMIT) as reply:
                return reply.status, reply.headers, reply.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read().decode()

    def state(self):
        status, headers, text = self.get("/state.json")
        assert (status, headers["Content-Type"]) == (200, "application/json"), text
        return json.loads(text)


def test_page_is_served_to_the_token_on_loopback_names_only(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        status, headers, text = page.get()
        assert status == 200 and "<title>ddrun</title>" in text and page.token not in text
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["Access-Control-Allow-Origin"] is None and headers["Referrer-Policy"] == "no-referrer"
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        wrong = page.token[:-1] + ("0" if page.token[-1] != "0" else "1")
        for token in (None, "", wrong, page.token + "0"):
            assert [page.get(path, token)[0] for path in ("/", "/state.json", "/timeline.json", "/x")] == [403] * 4, token
        assert page.get("/x")[0] == 404 and page.get("/timeline.json")[0] == 404
        assert [page.get(path, None)[0] for path in ("/web.js", "/web.css")] == [200, 200]
        for name in ("evil.example", f"evil.example:{page.port}", "127.0.0.1.evil.example", ""):
            assert page.get(headers={"Host": name})[0] == 403, name
        assert page.get(headers={"Host": "localhost:1"})[0] == 200  # a port that ssh forwards
        assert [page.get(method=m)[0] for m in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD")] == [501] * 5
        job.finish()


def test_page_answers_on_ipv6_loopback_too(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no ::1")
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        assert page.get(host="[::1]")[0] == 200
        job.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_page_refuses_another_user_with_the_token(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        for url in (page.url, page.url.replace("/?", "/state.json?"), page.url.replace("/?", "/web.js?")):
            p = subprocess.run([SYSTEM_PYTHON, "-c", FETCH, url], capture_output=True, text=True, timeout=LIMIT, check=True, cwd="/",
                               **as_user(ATTACKER))
            assert p.stdout == "403 Only the user of this ddctl web may open the page.\n"
        assert page.get()[0] == 200
        job.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_page_is_served_while_another_user_holds_more_connections_than_it_has_descriptors(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        resource.prlimit(page.p.pid, resource.RLIMIT_NOFILE, (100, 100))
        with subprocess.Popen([SYSTEM_PYTHON, "-c", CONNECT, str(page.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              cwd="/", **as_user(ATTACKER)) as p:
            assert p.stdout.readline() == "ready\n"
            began = time.monotonic()
            assert page.get()[0] == 200
            assert time.monotonic() - began < REQUEST_S / 2, "the page waited until connections without a request were closed"
        job.finish()


def test_state_has_ranks_failure_store_and_events_until_the_end(tmp_path):
    options = ("--simulate-nodes=2", "--nproc-per-node=2", "--max-restarts=1")
    with Running(tmp_path, *options, script=FAILS_WITH_MARKUP) as job:  # rank 1 may fail before the others print
        job.ready(4, restart=1)
        with Page(job, f"--timeline={tmp_path}/t.json") as page:
            s = until(lambda: (s := page.state())["status"]["state"] == "running" and any(e["event"] == "exit" for e in s["events"]) and s)
            assert (s["version"], s["ended"], s["problem"], s["timeline"]) == (1, False, "", True)
            assert s["job"] == job.status()["job"] == s["status"]["job"]
            assert [(n["workers"], n["first_rank"]) for n in s["status"]["nodes"]] == [(2, 0), (2, 2)]
            assert (s["status"]["round"], s["status"]["restarts"]) == (1, 1)
            failure, = (e for e in s["events"] if e["event"] == "exit")
            assert failure["line"] == f"round 0: rank 1 ({failure['node']}) failed with code 3: ValueError: {MARKUP}"
            assert s["profile"]["version"] == 1 and s["profile"]["operations"] == [] and s["profile"]["sizes"] is not None
            assert s["metrics"].endswith("# EOF\n") and "ddrun_startup_seconds " in s["metrics"]
            assert page.get("/timeline.json")[0] == 404  # not written yet
            (tmp_path / "t.json").write_text("[]")
            assert page.get("/timeline.json")[2] == "[]"
            job.finish()
            s = until(lambda: (s := page.state())["ended"] and s, say="the end of the job")
            assert s["events"][-1]["event"] == "finish" and s["events"][-1]["code"] == 0
            assert s["status"]["round"] == 1 and s["problem"] == "", "the last state stays"


def test_page_outlives_the_loss_of_the_leader_with_one_copy_of_each_event(tmp_path):
    with Running(tmp_path, "--simulate-nodes=3", "--nnodes=2:3", "--nproc-per-node=1", "--max-restarts=1", workers=3) as job, \
            Page(job) as page:
        daemon, = job.processes("ddrund")
        until(lambda: any(e["event"] == "started" for e in page.state()["events"]), say="the events of the first leader")
        os.kill(parent(daemon), signal.SIGKILL)
        until(lambda: (s := page.state())["status"]["round"] == 1 and s["status"]["state"] == "running" and not s["ended"]
              and sum(e["event"] == "round" for e in s["events"]) >= 2, say="the round of the next leader")
        lines = [json.dumps(e) for e in page.state()["events"]]
        assert len(lines) == len(set(lines))
        job.release()
        job.wait()
        until(lambda: page.state()["ended"], say="the end of the job")


def test_web_exits_on_a_signal_and_leaves_no_process(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        follower = until(lambda: [pid for pid in os.listdir("/proc") if pid.isdigit() and parent(int(pid)) == page.p.pid])
        os.kill(page.p.pid, signal.SIGTERM)
        assert page.p.wait(LIMIT) == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in follower)
        job.finish()


def test_web_exits_after_the_idle_limit(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job, "--idle-limit=1s") as page:
        assert page.p.wait(LIMIT) == 0
        assert "no request for 1 s; exiting" in page.p.stderr.read()
        job.finish()


PRINTS = (RANK_IS_READY + 'echo "early of $RANK"; until [ -e "$1.more" ]; do sleep 0.05; done\n'
          'printf "10%%\\r90%%\\n\\033[31mlate\\033[0m <b>of</b> $RANK\\n"; until [ -e "$1" ]; do sleep 0.05; done\n')


def test_log_has_the_last_lines_of_one_rank(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", script=PRINTS, workers=4) as job, Page(job) as page:
        def log(rank):
            status, headers, text = page.get("/log.json", f"{page.token}&rank={rank}")
            assert (status, headers["Content-Type"]) == (200, "application/json"), text
            found = json.loads(text)
            assert (found["version"], found["rank"]) == (1, rank) and set(found) == {"version", "rank", "text", "problem"}
            return found
        until(lambda: "early of 3\n" in log(3)["text"], say="the first line of rank 3")
        (tmp_path / "go.more").touch()
        found = until(lambda: "late" in (found := log(3))["text"] and found, say="a later line of rank 3")
        assert "early of 3\n" in found["text"] and "\x1b[31mlate\x1b[0m <b>of</b> 3\n" in found["text"] and found["problem"] == ""
        assert log(4)["text"] == "" and log(4)["problem"], "there is no rank 4"
        assert page.get("/log.json")[0] == 404
        for token in (f"{page.token}&rank=x", f"{page.token[:-1]}&rank=3", "&rank=3"):
            assert page.get("/log.json", token)[0] == 403
        job.finish()
        until(lambda: page.state()["ended"], say="the end of the job")
        assert log(3)["text"] == "" and log(3)["problem"]


def test_browsers_that_leave_before_the_log_harm_nothing(tmp_path):
    with Running(tmp_path, "--nproc-per-node=1") as job, Page(job) as page:
        request = f"GET /log.json?token={page.token}&rank=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for turn in range(60):
            with socket.create_connection(("127.0.0.1", page.port)) as s:
                s.sendall(request)
                if turn % 2:  # a reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: page.get("/log.json", f"{page.token}&rank=0")[0] == 200, say="the output of rank 0")  # 503: many wait
        with socket.create_connection(("127.0.0.1", page.port)) as s:
            s.sendall(request)
            os.kill(page.p.pid, signal.SIGTERM)
            assert page.p.wait(LIMIT) == 0
        job.finish()


def test_web_without_a_job_reports_it_and_prints_no_address():
    assert "no ddrun job" in ddctl("web", "--job=nothing", code=1) or "no job 'nothing'" in ddctl("web", "--job=nothing", code=2)


def browse(url, *what):
    """What Chromium reports after the page has had some of its own time."""
    p = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000",
                        *what, url], env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert p.returncode == 0, p.stderr
    return p.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_draws_every_rank_and_shows_markup_as_text(tmp_path):
    options = ("--simulate-nodes=2", "--nproc-per-node=4", "--max-restarts=1")
    with Running(tmp_path, *options, script=FAILS_WITH_MARKUP) as job:
        job.ready(8, restart=1)
        until(lambda: all(w["state"] == "running" for w in job.status()["workers"]))
        with Page(job) as page:
            dom = browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")
            ranks = re.findall(r'<i class="cell running" data-rank="\d+" title="rank (\d+), \S+, local rank \d: running">', dom)
            assert ranks == [str(r) for r in range(8)], dom
            assert "<title>running · " in dom and "taken</title>" not in dom
            reason = dom.partition('id="failure-line"')[2].partition("</p>")[0]
            assert "ValueError: &lt;script&gt;" in reason and "onerror" in reason and "<img" not in dom
            job.finish()


def test_end_of_a_job_is_known_although_another_job_does_not_answer(tmp_path):
    (tmp_path / "other").mkdir()
    other_options = ("--simulate-nodes=1", "--nproc-per-node=1", "--heartbeat=100s")
    with Running(tmp_path / "other", *other_options) as other, Running(tmp_path, "--nproc-per-node=1") as job:
        agent, = other.agents()
        os.kill(agent, signal.SIGSTOP)
        try:
            with Page(job) as page:
                job.finish()
                until(lambda: page.state()["ended"], say="the end of the job")
                assert [e["code"] for e in page.state()["events"] if e["event"] == "finish"] == [0]
        finally:
            os.kill(agent, signal.SIGCONT)
        other.finish()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_shows_the_failed_rank_of_an_ended_job(tmp_path):
    script = RANK_IS_READY + 'until [ -e "$1" ]; do sleep 0.05; done\n[ "$RANK" != 2 ] || exit 3\nsleep 1000\n'
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", script=script, workers=4) as job, Page(job) as page:
        until(lambda: page.state()["status"]["state"] == "running")
        job.finish(code=3)
        until(lambda: page.state()["ended"], say="the end of the job")
        dom = browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")
        cells = re.findall(r'<i class="cell (\w+)" data-rank="\d" title="rank (\d)[^"]*">([^<]*)</i>', dom)
        assert cells == [("ended", "0", "0"), ("ended", "1", "1"), ("failed", "2", "✕"), ("ended", "3", "3")], dom
        assert "<title>failed: exit code 3 · " in dom and "this page no longer changes" in dom


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_shows_the_stragglers_until_the_job_ends(tmp_path):
    with Training(tmp_path, "marked", "slow") as job:
        until(lambda: len(job.stragglers()) == 2, say="both ranks of the slow node")
        with Page(job) as page:
            dom = browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")
            shown = re.findall(r"<li>Straggler: (rank \d) on (\S+) takes [^<]* the median time per step", dom)
            assert len(shown) == 2 and len({node for _, node in shown}) == 1 and "<dt>Time per step</dt>" in dom, dom
            job.ends()
            until(lambda: page.state()["ended"], say="the end of the job")
            assert "Straggler" not in browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_shows_that_the_whole_job_hung(tmp_path):
    script = RANK_IS_READY + 'until [ -e "$1" ]; do echo; sleep 0.5; done\nexec sleep 600\n'  # active until the page is there
    with Running(tmp_path, "--nproc-per-node=2", "--hang-timeout=10s", "--shutdown-timeout=2s", script=script, workers=2) as job, Page(job) as page:
        until(lambda: page.state()["status"]["state"] == "running")
        job.finish(code=134)
        until(lambda: page.state()["ended"], say="the end of the job")
        dom = browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")
        assert '<p id="failure-line">the job hung: no output, ' in dom, dom


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_follows_the_output_of_the_rank_that_is_clicked(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=2", script=PRINTS, workers=4) as job, Page(job) as page, \
            Browser(tmp_path, page.url) as browser:
        def shows(*lines):
            until(lambda: set(lines) <= set((browser.value("document.getElementById('log').textContent") or "").splitlines()), say=lines)
        def choose(rank):  # again if the page has moved meanwhile
            until(lambda: browser.value("document.getElementById('log-title').textContent") == f"Last lines of rank {rank}"
                  or browser.click(f"[data-rank='{rank}']"), say=f"the output of rank {rank}")
        choose(1)
        shows("early of 1")
        assert browser.value("document.querySelectorAll('.chosen').length") == 1
        (tmp_path / "go.more").touch()
        shows("early of 1", "90%", "late <b>of</b> 1")
        choose(2)
        shows("early of 2", "late <b>of</b> 2")
        assert "of 1" not in browser.value("document.getElementById('log').textContent")
        job.finish()
        until(lambda: browser.value("document.getElementById('log-problem').textContent") == "The job has ended.")
        shows("late <b>of</b> 2")
        until(lambda: browser.value("document.getElementById('log-part').hidden") or browser.click("#log-close"), say="the output to be closed")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian: chromium)")
def test_chromium_shows_the_operations_of_the_store(tmp_path):
    with Running(tmp_path, "--simulate-nodes=2", "--nproc-per-node=1", "--profile", workers=2, command=(PYTHON, "-c", STORE_WORKER)) as job, \
            Page(job) as page:
        dom = browse(page.url, f"--user-data-dir={tmp_path}/profile", "--dump-dom")
        operations = dom.partition('id="operations"')[2].partition("</table>")[0]
        assert re.search(r"<td>SET</td><td>4</td>", operations), dom
        assert re.search(r"<td>\S*k1</td><td>\d+</td>", dom.partition('id="keys"')[2].partition("</table>")[0]), dom
        os.kill(job.workers()[0], signal.SIGTERM)  # ends the job
        job.wait()
        job.assert_nothing_left()
