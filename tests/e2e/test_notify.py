"""--notify: what a web hook receives about a job, and that no web hook, however broken, affects the job."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from support import BUILD, LIMIT, Job, clean_env, free_port, parent, program, run, told, until, without_tips
from webserver import WebServer, needs_helper

pytestmark = needs_helper


class Hook(WebServer):
    """A web hook; answer(n) returns the status of the n-th request, from 0, and may block. text is the body of each response."""

    def __init__(self, answer=lambda n: 200, text="", missing=0):
        self.asked, self.taken, self.headers, self.answer, self.text, self.missing = [], [], [], answer, text, missing
        super().__init__()
        self.place = tempfile.TemporaryDirectory(prefix="hook")
        self.go = os.path.join(self.place.name, "go")
        self.url = f"http://{self.host}/hook/secret?x=1"

    def reply(self, path, headers, body):
        event = json.loads(body)
        self.headers.append(headers)
        self.asked.append(event)
        status = self.answer(len(self.asked) - 1)
        if status == 200:
            self.taken.append(event)
        if event["event"] == "started" and status != 503:
            open(self.go, "w", encoding="ascii").close()
        return status, self.text

    def kinds(self):
        return [e["event"] for e in self.taken]


    def heard(self, script):
        """Return a shell command that runs `script` once the hook has received the start of the job: ddrun does not wait long
        at its end for what is sent later, and on a busy machine the helper is late."""
        return ["sh", "-c", f"until [ -e {self.go} ]; do sleep 0.05; done\n{script}"]

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.place.cleanup()


def job_args(hook, *more):
    return [f"--notify={hook if isinstance(hook, str) else hook.url}", "--nproc-per-node=1", "--no-python", *more]


SECRETS = "env | grep -c '^DDRUN_NOTIFY' >&2; exit 0"


def test_a_job_is_told_from_its_first_round_to_its_end():
    with Hook() as hook:
        args = job_args(hook, *hook.heard(SECRETS))
        job = run("--simulate-nodes=2", *args[1:], env=clean_env(DDRUN_NOTIFY=hook.url, DDRUN_NOTIFY_TOKEN="abc.def"))
        assert job.p.returncode == 0 and told(job.err) == "0\n0\n", job.err
        assert hook.kinds() == ["round", "started", "finish"]
        first, _, last = hook.taken
        assert (first["round"], first["nodes"], first["workers"]) == (0, 2, 2)
        assert all(part in first["text"] for part in ("round 0", "2 workers", "2 nodes"))
        assert last["code"] == 0 and last["text"].endswith(": finished")
        assert len({e["job"] for e in hook.taken}) == 1 and all(e["job"] in e["text"] for e in hook.taken)
        assert {h["Authorization"] for h in hook.headers} == {"Bearer abc.def"}
        assert {h["Content-Type"] for h in hook.headers} == {"application/json"}


def test_a_failure_is_told_with_its_reason():
    with Hook() as hook:
        job = run("--simulate-nodes=2", *job_args(hook, *hook.heard("[ $RANK = 0 ] && sleep 60; echo oh no >&2; exit 7")))
        assert job.p.returncode == 7
        assert hook.kinds()[0] == "round" and hook.kinds()[-1] == "finish"
        failed, = [e for e in hook.taken if e["event"] == "exit"]
        end = hook.taken[-1]
        assert (failed["rank"], failed["code"], failed["node"]) == (1, 7, "sim2") and all(part in failed["text"] for part in ("rank 1", "sim2", "code 7"))
        assert end["code"] == 7 and "Authorization" not in hook.headers[0]


def test_what_is_not_taken_is_told_again_in_its_order():
    with Hook(lambda n: 503 if n in (0, 1, 3) else 200) as hook:
        job = run(*job_args(hook, *hook.heard("exit 5")))
        assert job.p.returncode == 5
        assert hook.kinds()[0] == "round" and hook.kinds()[-1] == "finish" and hook.kinds().count("exit") == 1
        assert len(hook.asked) == len(hook.taken) + 3
        assert job.err.count("HTTP 503") == 2 and "secret" not in job.err  # once each time


def test_who_refuses_events_is_not_asked_twice():
    with Hook(lambda n: 404) as hook:
        job = run(*job_args(hook, *hook.heard("exit 0")))
        assert job.p.returncode == 0
        assert [e["event"] for e in hook.asked] == ["round", "started", "finish"]
        assert job.err.count("HTTP 404") == 1 and len(without_tips(job.err)) == 1, job.err


@pytest.mark.parametrize("text, missing", [("x" * 100000, 0), ("half", 100), ("\0\x1b[31m", 0)])
def test_an_event_is_taken_whatever_is_said_to_it(text, missing):
    with Hook(text=text, missing=missing) as hook:
        job = run(*job_args(hook, *hook.heard("exit 0")))
        assert job.p.returncode == 0 and job.err == ""
        assert [e["event"] for e in hook.asked] == ["round", "started", "finish"]


@pytest.mark.parametrize("url, env", [
    ("http://hook.invalid/x", {"http_proxy": "HOOK"}),
    ("HOOK/x", {"http_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}),
])
def test_proxies_are_used_as_the_environment_says(url, env):
    with Hook() as hook:
        at = f"http://{hook.host}"
        job = run(*job_args(url.replace("HOOK", at), *hook.heard("exit 0")), env=clean_env(**{k: v.replace("HOOK", at) for k, v in env.items()}))
        assert job.p.returncode == 0 and job.err == ""
        assert hook.kinds() == ["round", "started", "finish"]


def test_a_web_hook_that_never_answers_does_not_hold_the_job():
    stop = threading.Event()

    def answer(_):
        open(hook.go, "w", encoding="ascii").close()
        stop.wait(60)
        return 200

    with Hook(answer) as hook:
        try:
            job = run(*job_args(hook, *hook.heard("exit 9")))
            assert job.p.returncode == 9
            assert hook.asked and "did not accept the last" in job.err and "secret" not in job.err
        finally:
            stop.set()


def test_a_web_hook_that_is_not_there_does_not_hold_the_job(tmp_path):
    go, said = tmp_path / "go", ""
    with Job(*job_args(f"http://127.0.0.1:{free_port()}/x", "sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 9")) as job:
        while "retrying" not in said:
            said += os.read(job.p.stderr.fileno(), 65536).decode()
            assert said and job.p.poll() is None, said
        go.touch()
        assert job.wait() == 9
        assert (said + job.err).count("retrying") == 1 and (said + job.err).count("did not accept the last") == 1


def test_the_successor_goes_on_and_there_is_one_end(tmp_path):
    go = tmp_path / "go"
    with Hook() as hook, Job("--simulate-nodes=3", "--nnodes=2:3", f"--notify={hook.url}", "--nproc-per-node=1", program("rounds.py"), "2,3",
                             str(go)) as job:
        until(lambda: "started" in hook.kinds(), say="the first round")
        os.kill(parent(job.processes("ddrund")[0]), signal.SIGKILL)
        until(lambda: hook.kinds().count("started") == 2, say="the next round")
        go.touch()
        assert job.wait() == 0, job.err
        assert hook.kinds().count("finish") == 1 and hook.kinds()[-1] == "finish"
        assert [e["nodes"] for e in hook.taken if e["event"] == "round"] == [3, 2]
        assert len({e["job"] for e in hook.taken}) == 1
        job.assert_nothing_left()


def test_a_slow_web_hook_loses_the_oldest_events_and_is_told_how_many(tmp_path):
    go, last = tmp_path / "go", threading.Event()
    script = 'if [ $TORCHELASTIC_RESTART_COUNT -lt 40 ]; then exit 1; fi; echo last; until [ -e "$0" ]; do sleep 0.1; done'

    def answer(_):
        if last.is_set():
            return 200
        last.wait(60)
        return 500

    with Hook(answer) as hook, \
            Job("--max-restarts=40", *job_args(hook, "sh", "-c", script, str(go))) as job:
        job.line("last")
        last.set()
        until(lambda: any(e.get("round") == 40 for e in hook.taken), say="the last round")
        go.touch()
        assert job.wait() == 0, job.err
        assert sum(e.get("dropped", 0) for e in hook.taken) > 0
        rounds = [e["round"] for e in hook.taken if e["event"] == "round"]
        assert rounds == sorted(rounds) and rounds[-1] == 40 and hook.kinds()[-1] == "finish"
        job.assert_nothing_left()


@pytest.mark.parametrize("args, env, says", [
    (["--notify=ftp://h/x"], {}, "--notify: invalid URL"),
    (["--notify=http:///x"], {}, "--notify: invalid URL"),
    (["--notify=https://h/a b"], {}, "--notify: invalid URL"),
    (["--notify="], {}, "--notify: invalid URL"),
    (["--notify=http://user:pass/word@h/x"], {}, "--notify: invalid URL"),
    ([b"--notify=https://h/\xff"], {}, "--notify: invalid URL"),
    (["--notify=http://127.0.0.1:1/"], {"DDRUN_NOTIFY_TOKEN": "a\nX: y"}, "DDRUN_NOTIFY_TOKEN"),
    (["--notify=http://127.0.0.1:1/"], {"DDRUN_NOTIFY_TOKEN": "a" * 100000}, "DDRUN_NOTIFY_TOKEN"),
])
def test_what_is_no_web_hook_is_one_sentence(args, env, says):
    job = run(*args, "true", env=clean_env(**env))
    assert job.p.returncode == 2
    assert says in job.err and len(without_tips(job.err)) == 1, job.err


def test_without_the_helper_the_option_says_what_is_missing(tmp_path):
    for name in ("ddrun", "ddrund"):
        shutil.copy(os.path.join(BUILD, name), tmp_path)
    done = subprocess.run([tmp_path / "ddrun", "--notify=http://127.0.0.1:1/", "true"], env=clean_env(), capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 2 and "libcurl" in done.stderr, done.stderr
