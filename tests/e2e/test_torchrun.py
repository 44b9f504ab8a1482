"""torchrun beside ddrun: the same command line gives workers the same environment, and has the same exit code and files.

Each case runs under the real torchrun (three at a time, as it takes a second or two to start), under a link to ddrun of that
name, and under ddrun itself. Intended differences are listed in DIFFERS, with a sentence in docs/torchrun.md.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from support import (BUILD, DDRUN, LIMIT, PYTHON, Job, clean_env, free_port, json_lines, program, run, told,
                     with_torch, without_tips)

TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
WITNESS = program("witness.py")
# What torchrun sets; the rest of the environment is inherited.
NAMES = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
         "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
         "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS",
         "CUDA_VISIBLE_DEVICES"]
# Set by torchrun or ddrun alone, or different in each run.
OTHERS = re.compile(r"^(MASTER_(ADDR|PORT)|TORCHELASTIC_ERROR_FILE|TORCHINDUCTOR_CACHE_DIR|KINETO\w*|CROSS_(RANK|SIZE)|DDRUN_\w+|"
                    r"(GLOO|TP|NCCL)_SOCKET_IFNAME|NCCL_RAS_ADDR|TORCH_FR_DUMP_TEMP_FILE|TORCH_NCCL_DEBUG_INFO_PIPE_FILE|JAX_\w+|HOROVOD_\w+|CCL_\w+|WITNESS_DIR|PYTEST_\w+|PET_\w+|TMPDIR|LC_CTYPE|_)$")


pytestmark = with_torch


@dataclasses.dataclass
class Case:
    """A command line, in which {logs} is a directory of the run; its subject; and the intended differences."""
    args: list
    about: str = ""
    env: dict = dataclasses.field(default_factory=dict)
    stop: str = ""        # a signal for the launcher once all workers are ready
    world: int = 1        # workers that then are awaited
    code: int = 0         # torchrun's exit code
    ddrun_code: int = -1  # ddrun's own where it is called ddrun, if it is another
    differs: tuple = ()   # see the comparisons
    cwd: str = ""


C10D = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]

CASES = {
    "defaults": Case([WITNESS, "a", "b c", "ok"], "nproc 1, no OMP_NUM_THREADS, a run of its own", differs=("run id",)),
    "spellings": Case(["--nproc_per", "2", "--stan", "--max-res", "2", "--role=one", "--role", "tr", "-r=3", "-t", "0", "--log_dir={logs}", WITNESS,
                       "--", "${local_rank}", "$local_rank", "$$x", "$other", "${other}", "$local_rankx", "--nproc-per-node", "3", "--", "ok"],
                      "abbreviations, the last one wins, the -- rules, substitution, files", differs=("run id",)),
    "dashes before": Case([*C10D, "--rdzv-id=j8", "--", WITNESS, "--x", "--", "y", "ok"], "a -- before SCRIPT"),
    "variables": Case(["--role=mine", "witness", "-x", "ok"], "PET_ variables, -m", cwd="programs",
                      env={"PET_NPROC_PER_NODE": "2", "PET_MODULE": "1", "PET_ROLE": "theirs", "PET_RDZV_ID": "j1", "PET_RDZV_BACKEND": "c10d",
                           "PET_RDZV_ENDPOINT": "localhost:0", "PET_MAX_RESTARTS": "1", "OMP_NUM_THREADS": "3", "RANK": "77"}),
    "tee": Case(["--nproc-per-node=3", "-t", "3", "--local-ranks-filter=0,2", "--log-dir={logs}", "--duplicate-stdout-filters=nothing,loss 0,, 1",
                 "--duplicate-stderr-filters", "err", "--role=tr", WITNESS], "tee, filters, who is shown", differs=("run id",)),
    "maps": Case(["--nproc-per-node=3", "-r", "0:1,2:2", "-t", "1:3", "--log-dir={logs}", "--signals-to-handle=SIGTERM,SIGUSR1",
                  "--start-method=fork", "--event-log-handler=null", "--shutdown-timeout=7", "--monitor-interval=0.2", WITNESS, "ok"],
                 "per-rank maps, prefix template, options without effect", differs=("run id",),
                 env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank} ${else}> "}),
    "no python": Case(["--no-python", "--nproc-per-node=2", "--log-dir={logs}", "-r1", "sh", "-c", "echo $0 $$LOCAL_RANK ${local_rank}", "x"],
                      "a program, no interpreter"),
    "run path": Case(["--run-path", "--log-dir={logs}", WITNESS, "throw"], "runpy, the error file", code=1,
                     env={"TORCHELASTIC_ERROR_FILE": "{logs}/copy.json"}, differs=("run id", "interpreter")),
    "virtual": Case(["--virtual-local-rank", "--nproc-per-node=2", "--master-port={port}", WITNESS, "${local_rank}", "ok"],
                    "one GPU for each", env={"CUDA_VISIBLE_DEVICES": "5,3"}),
    "exit code": Case(["--nproc-per-node=2", "--log-dir={logs}", "-r3", WITNESS, "exit:3@1"], "a worker fails", code=1, ddrun_code=3,
                      differs=("run id",)),
    "signal": Case(["--nproc-per-node=2", WITNESS, "kill:SIGSEGV@0"], "a worker is killed", code=1, ddrun_code=139, differs=("run id",)),
    "error file": Case(["--nproc-per-node=2", "--log-dir={logs}", "--log-dir={logs}/deeper", WITNESS, "raise@1"],
                       "record()'s file, copied for our own starter", code=1, env={"TORCHELASTIC_ERROR_FILE": "{logs}/copy.json"},
                       differs=("run id",)),
    "restart": Case(["--nproc-per-node=2", "--max-restarts=3", "--log-dir={logs}", "-r3", *C10D, "--rdzv-id=again", WITNESS, "first", "exit:3@1"],
                    "a restart: counts and files of each attempt"),
    "term": Case(["--nproc-per-node=2", WITNESS, "wait"], "SIGTERM is handed on", stop="SIGTERM", world=2, code=1, ddrun_code=143,
                 differs=("run id",)),
    "int": Case(["--nproc-per-node=2", "--log-dir=/dev/null", WITNESS, "wait"], "SIGINT too; no error file", stop="SIGINT", world=2, code=1,
                ddrun_code=130, differs=("run id",)),
    "usr1": Case(["--signals-to-handle=SIGUSR1,SIGTERM", "--nproc-per-node=2", WITNESS, "wait"], "USR1 ends the job where it is named",
                 stop="SIGUSR1", world=2, code=1, ddrun_code=138, differs=("run id",)),
    "deaf": Case(["--shutdown-timeout=1", WITNESS, "deaf"], "who stays is killed", stop="SIGHUP", code=1, ddrun_code=129, differs=("run id",)),
    "bad option": Case(["--bogus", WITNESS], "an unknown option", code=2),
    "no script": Case(["--nproc-per-node=1"], "no script", code=2),
    "bad choice": Case(["--start-method=x", WITNESS], "a value that is none of the choices", code=2),
}


class Done:
    """The outcome of one case under one launcher."""

    def __init__(self, argv, case, folder):
        self.folder = str(folder)
        self.logs = os.path.join(self.folder, "logs")
        seen = os.path.join(self.folder, "seen")
        for name in (self.logs, seen):
            os.makedirs(name)
        place = {"logs": self.logs, "port": free_port()}
        fill = lambda s: s.replace("{logs}", place["logs"]).replace("{port}", str(place["port"]))  # noqa: E731
        env = clean_env(WITNESS_DIR=seen, TMPDIR=self.folder, PYTHONDONTWRITEBYTECODE="1", **{k: fill(v) for k, v in case.env.items()})
        cwd = os.path.join(os.path.dirname(WITNESS), "..", case.cwd)
        self.p = subprocess.Popen([*argv, *map(fill, case.args)], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            if case.stop:
                self._stop(case, seen)
            self.out, self.err = self.p.communicate(timeout=LIMIT)
        finally:
            self.p.kill()
            self.p.communicate()
        self.code = self.p.returncode
        self.seen = {}
        for name in sorted(os.listdir(seen)):
            with open(os.path.join(seen, name), encoding="utf-8") as f:
                self.seen[name] = json.load(f)

    def _stop(self, case, seen):
        def ready(name):
            try:
                with open(os.path.join(seen, name), encoding="utf-8") as f:
                    return json.load(f).get("ready")
            except (OSError, ValueError):
                return False
        end = time.monotonic() + LIMIT
        while not all(ready(f"0-{r}.json") for r in range(case.world)):
            assert time.monotonic() < end and self.p.poll() is None, self.p.communicate()
            time.sleep(0.02)
        self.p.send_signal(getattr(signal, case.stop))

    def workers(self, differs):
        """Return what the workers saw, without the intended differences."""
        result = {}
        for name, s in self.seen.items():
            s = dict(s)
            env = s.pop("env")
            told = {n: env.get(n) for n in NAMES}
            if "run id" in differs:
                assert told.pop("TORCHELASTIC_RUN_ID")
            if "interpreter" in differs:
                for key in ("orig_argv", "fds", "masks", "leader"):
                    s.pop(key)
            rest = {n: v for n, v in env.items() if n not in NAMES and not OTHERS.match(n)}
            has_file = env["TORCHELASTIC_ERROR_FILE"] != ""
            result[name] = {**s, "told": told, "rest": rest, "error file": has_file}
        return flat(json.loads(json.dumps(result).replace(self.folder, "FOLDER")))

    def files(self):
        """Return {path below the run's directory: content}; of error.json only what does not change from run to run."""
        found = {}
        for folder, _, names in os.walk(self.logs):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                key = re.sub(r"^((?:deeper/)?)[^/]+_[^/]{8}/", r"\1RUN/", os.path.relpath(path, self.logs))
                found[key] = error_of(text) if name.endswith(".json") else "".join(sorted(text.splitlines(True)))
        return found


def flat(tree, at=""):
    """Return {path: leaf}, so that a difference is short to read."""
    if not isinstance(tree, dict):
        return {at: tree}
    return {path: leaf for key, value in tree.items() for path, leaf in flat(value, f"{at}/{key}").items()}


def differences(ours, theirs):
    return [f"{key}: {ours.get(key)!r}, torchrun: {theirs.get(key)!r}" for key in sorted(ours.keys() | theirs.keys())
            if ours.get(key) != theirs.get(key)]


def error_of(text):
    message = json.loads(text)["message"]
    return {"message": message["message"], "extra": sorted(message["extraInfo"]), "errorCode": message.get("errorCode"),
            "last line": message["extraInfo"]["py_callstack"].strip().splitlines()[-1]}


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """Return a link to ddrun with the name torchrun."""
    path = tmp_path_factory.mktemp("bin") / "torchrun"
    path.symlink_to(DDRUN)
    return str(path)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Yield {case: Done} of the real torchrun, which runs in the background."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(Done, TORCHRUN, case, tmp_path_factory.mktemp("torchrun")) for name, case in CASES.items()}


def console(text):
    """Return the lines of the workers, sorted because their order is random, without torchrun's own."""
    return sorted(line for line in text.splitlines() if re.search(r"(out|loss|err) \d", line) and not line.startswith(("ddrun", "  ")))


def files_of(done, case):
    """Return the run's files. Under its own name ddrun also logs the output where only --log-dir is given."""
    asked = any(str(word).startswith(("-r", "-t", "--tee", "--redirects")) for word in case.args)
    return {path: text for path, text in done.files().items() if asked or path.endswith(".json")}


@pytest.mark.parametrize("name", CASES)
def test_the_same_happens_under_torchrun_and_ddrun(name, theirs, link, tmp_path):
    case = CASES[name]
    named = Done([link], case, tmp_path / "link")
    own = Done([DDRUN], case, tmp_path / "ddrun")
    real = theirs[name].result()
    assert real.code == case.code, real.err
    assert (named.code, own.code) == (case.code, case.code if case.ddrun_code < 0 else case.ddrun_code), named.err + own.err
    for ours in (named, own):
        assert differences(ours.workers(case.differs), real.workers(case.differs)) == [], case.about
        assert differences(files_of(ours, case), real.files()) == [], case.about
        assert console(ours.out) == console(real.out)
        assert console(ours.err) == console(real.err)


def test_an_exception_is_recorded_without_a_log_directory_and_nothing_is_left(tmp_path):
    copy = tmp_path / "copy.json"
    job = run("--nproc-per-node=2", WITNESS, "raise@1", env=clean_env(WITNESS_DIR=str(tmp_path), TORCHELASTIC_ERROR_FILE=str(copy)))
    assert job.p.returncode == 1
    assert error_of(copy.read_text())["message"] == "ValueError: this worker has had enough"


# torchrun rejects these with a stack trace, or ignores them; ddrun prints one sentence and starts nothing.
@pytest.mark.parametrize("args, says", [
    (["--rdzv-backend=etcd"], "--rdzv-endpoint"),
    (["--rdzv-backend=zzz"], "'zzz'"),
    (["--rdzv-conf=timeout"], "KEY=VALUE"),
    (["--rdzv-conf=join_timeout=soon"], "join_timeout"),
    (["--rdzv-conf=is_host=perhaps"], "is_host"),
    (["--logs-specs=mine"], "'mine'"),
    (["--signals-to-handle=SIGTERM,SIGKILL"], "SIGKILL"),
    (["-m", "--no-python"], "--no-python"),
    (["--virtual-local-rank", "--nproc-per-node=3"], "CUDA_VISIBLE_DEVICES"),
    (["--nnodes=2:1"], "--nnodes"),
    (["--nproc-per-node=0"], "1 to"),
    (["-r", "5"], "--redirects"),
])
def test_what_cannot_be_gets_a_sentence(args, says):
    job = run(*args, WITNESS, env=clean_env(CUDA_VISIBLE_DEVICES="0,1", WITNESS_DIR="/nonexistent"))
    assert job.p.returncode == 2 and job.out == ""
    line, = without_tips(job.err)
    assert says in line, line


@pytest.mark.parametrize("args, says", [
    (["--rdzv-conf=join_timeot=3"], "'join_timeot'"),
    (["--signals-to-handle=SIGTERM,SIGFOO"], "'SIGFOO'"),
    (["--event-log-handler=console"], "--event-log-handler"),
    (["--logs-specs=default", "--local-addr=127.0.0.3", "--rdzv-conf=timeout=30,rank=0,store_type=file"], None),
])
def test_what_is_taken_but_does_less_is_said_once(args, says):
    job = run(*args, "true")
    assert job.p.returncode == 0
    assert [says in line for line in without_tips(job.err)] == ([True] if says else []), job.err


def test_the_local_address_is_the_master_of_a_single_node():
    job = run("--local-addr=127.0.0.3", "--nproc-per-node=2", program("show_env.py"))
    assert {w["env"]["MASTER_ADDR"] for w in json_lines(job.out)} == {"127.0.0.3"}, job.err


def test_standalone_ignores_what_else_is_said_of_a_rendezvous():
    job = run("--standalone", "--rdzv-endpoint=192.0.2.1:29400", "--node-rank=3", "--master-addr=192.0.2.1", program("show_env.py"))
    assert job.p.returncode == 0, job.err
    assert json_lines(job.out)[0]["env"]["MASTER_ADDR"] == "127.0.0.1"


def test_timeouts_of_rdzv_conf_are_ours(tmp_path):
    job = run("--nnodes=2", "--node-rank=0", f"--master-port={free_port()}", "--rdzv-conf=timeout=1", "--insecure", "true")  # the default is 10 min
    assert job.p.returncode == 1, job.err
    assert "1 of 2 nodes" in job.err or "missing" in job.err, job.err


# Measured defects of torchrun. test_run.py has its stale store after a restart, orphans, and peers that never notice a failure.

UNEVEN = """
me=$DIR/$TORCHELASTIC_RESTART_COUNT
if [ $RANK = 0 ]; then echo $$ > $me.tmp; mv $me.tmp $me; exit 0; fi
while [ ! -e $me ] || kill -0 $(cat $me) 2>/dev/null; do sleep 0.01; done
[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 7
"""


@pytest.mark.parametrize("restarts, code", [(0, 7), (1, 0)])
def test_a_node_that_has_finished_does_not_hold_up_one_that_fails(restarts, code, tmp_path):
    """Under torchrun it waits 300 s at the exit barrier, or the other node waits 600 s for it."""
    script = tmp_path / "uneven.sh"
    script.write_text(UNEVEN)
    began = time.monotonic()
    job = run("--simulate-nodes=2", "--nproc-per-node=1", f"--max-restarts={restarts}", "sh", str(script), env=clean_env(DIR=str(tmp_path)))
    assert job.p.returncode == code, job.err
    assert time.monotonic() - began < 100  # not one of those waits
    assert sorted(name for name in os.listdir(tmp_path) if name.isdigit()) == [str(n) for n in range(restarts + 1)]


def test_restarts_are_counted_the_same_on_all_nodes(tmp_path):
    """torchrun counts them per agent, so that the workers of one job disagree."""
    job = run("--simulate-nodes=2", "--nproc-per-node=1", "--max-restarts=2", WITNESS, "first", "exit:3@1",
              env=clean_env(WITNESS_DIR=str(tmp_path)))
    assert job.p.returncode == 0, job.err
    assert sorted(os.listdir(tmp_path)) == ["0-0.json", "0-1.json", "1-0.json", "1-1.json"]


def test_a_restart_finds_a_fresh_store():
    """Under torchrun 4 of 10 such jobs finish. The script compares both; here it runs ddrun alone."""
    script = os.path.join(os.path.dirname(__file__), "..", "bench", "bench_restart.py")
    done = subprocess.run([PYTHON, script, "--runs=1", "--torchrun-runs=0", "--nodes=1", f"--limit={LIMIT}"], capture_output=True, text=True, check=False,
                          timeout=LIMIT * 2, env=clean_env(DDRUN_BUILD=BUILD, DDRUN_PYTHON=PYTHON))
    assert done.returncode == 0 and "| ddrun | 1 | 1 | 0 | 0 |" in done.stdout, done.stdout + done.stderr


def test_a_node_that_is_left_over_ends_well():
    """torchrun exits with AttributeError and code 1 for the spare node of a job that succeeds."""
    job = run("--simulate-nodes=3", "--nnodes=1:2", "--nproc-per-node=1", program("rounds.py"), "0", "/nonexistent")
    assert (job.p.returncode, told(job.err)) == (0, "")
    assert sorted(w["RANK"] for w in json_lines(job.out)) == ["0", "1"]


def test_a_node_that_comes_in_a_later_round_meets_the_others(tmp_path):
    """Under torchrun it waits 60 s for an address that is no longer published, and the job dies; or there are two addresses."""
    go = tmp_path / "go"
    port = free_port()

    def agent(rank):
        return Job("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=late", f"--node-rank={rank}",
                   "--insecure", "--rdzv-conf=last_call_timeout=1", "--grow=now", "--nproc-per-node=1", program("rounds.py"), "1,2", str(go))
    with agent(0) as old:
        alone = json_lines(old.line("WORLD_SIZE"))
        assert [(w["RANK"], w["WORLD_SIZE"]) for w in alone] == [("0", "1")]
        with agent(1) as new:
            both = json_lines(old.line("WORLD_SIZE") + new.line("WORLD_SIZE"))
            go.touch()
            assert (new.wait(), old.wait()) == (0, 0), new.err + old.err
    assert sorted((w["RANK"], w["WORLD_SIZE"]) for w in both) == [("0", "2"), ("1", "2")]
    assert {w["MASTER_ADDR"] for w in both} == {alone[0]["MASTER_ADDR"]}


@pytest.mark.parametrize("style", [["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{}", "--rdzv-id=pair"],
                                   ["--master-addr=127.0.0.1", "--master-port={}"]])
def test_agents_of_one_host_meet_at_their_endpoint_whichever_listens(tmp_path, style):
    """PyTorch's own tests start two torchrun at once. Each finds that the endpoint is its own host, and one gets the port."""
    for _ in range(int(os.environ.get("DDRUN_PAIRS", "3"))):
        port = free_port()
        args = ["--nnodes=2", *[word.format(port) for word in style], "--nproc-per-node=1", program("rounds.py"), "0", "/nonexistent"]
        with Job(*args, home=str(tmp_path)) as a, Job(*args, home=str(tmp_path)) as b:
            assert (a.wait(), b.wait()) == (0, 0), a.err + b.err
            workers = json_lines(a.out) + json_lines(b.out)
            assert sorted((w["RANK"], w["WORLD_SIZE"]) for w in workers) == [("0", "2"), ("1", "2")]
            assert len({w["MASTER_ADDR"] for w in workers}) == 1, workers


@pytest.mark.parametrize("reply", [b"SSH-2.0-none\r\n" * 20, b""])
def test_an_endpoint_that_another_program_has_is_refused_soon(reply):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]

        def answer():
            while True:
                try:
                    c, _ = s.accept()
                except OSError:
                    return
                with c:
                    c.sendall(reply)
                    c.recv(1)
        threading.Thread(target=answer, daemon=True).start()
        job = run("--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "--insecure", "true")
        s.shutdown(socket.SHUT_RDWR)
    assert job.p.returncode == 2 and job.out == "", job.err
    assert str(port) in job.err and "in use" in job.err, job.err


def test_an_agent_whose_endpoint_a_silent_program_holds_waits_and_ends_at_a_signal():
    """The program has bound the port and does not listen: the agent can neither lead nor join there."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        with Job("--nnodes=2", f"--rdzv-endpoint=localhost:{s.getsockname()[1]}", "--insecure", "--rdzv-conf=join_timeout=3600", "true") as job:
            job.errors("waiting for the job's daemon")
            job.p.send_signal(signal.SIGINT)
            assert job.wait() == 128 + signal.SIGINT, job.err


def pose(listener):
    """Answer the hello of an agent with OK and "both sides have a key". Return the connection."""
    c, _ = listener.accept()
    c.recv(6)
    c.sendall(b"\xdddr\x01\x00\x03\x00\x01\x00")
    return c


def test_agents_take_the_endpoint_when_a_program_that_posed_as_their_daemon_has_left(tmp_path):
    """As when the agent that has the port is killed while another one joins it."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        args = ["--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "--nproc-per-node=1", program("rounds.py"), "0", "/nonexistent"]
        with Job(*args, home=str(tmp_path)) as a, Job(*args, home=str(tmp_path)) as b:
            callers = []
            s.settimeout(LIMIT)
            callers.append(pose(s))
            s.settimeout(0.5)
            end = time.monotonic() + 3  # longer than two probes of the port
            while time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    callers.append(pose(s))
            s.close()
            for c in callers:
                c.close()
            assert (a.wait(), b.wait()) == (0, 0), a.err + b.err


@pytest.mark.parametrize("how, code", [("first", 9), ("1", 1)])
def test_exit_code(how, code):
    assert run(f"--exit-code={how}", "--nproc-per-node=2", program("end.py"), "1", "9").p.returncode == code


NEAR = 'read -r _ policy _ < /proc/self/numa_maps; grep Cpus_allowed_list /proc/self/status; echo policy $policy'


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="this kernel knows no NUMA")
@pytest.mark.parametrize("how", ["node", "socket", "exclusive", "core-complex"])
def test_numa_binding_binds_processors_and_prefers_near_memory(how):
    """torchrun needs numactl and CUDA for it, and binds CPUs alone."""
    job = run(f"--numa-binding={how}", "--nproc-per-node=1", "sh", "-c", NEAR)
    assert job.p.returncode == 0, job.err
    allowed, policy = job.out.splitlines()
    cpus = set()
    for part in allowed.split()[1].split(","):
        low, _, high = part.partition("-")
        cpus |= set(range(int(low), int(high or low) + 1))
    assert cpus and cpus <= os.sched_getaffinity(0)
    assert policy.startswith("policy prefer"), policy
