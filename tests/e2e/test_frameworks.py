"""Frameworks other than PyTorch: the variables of their workers, and the real frameworks where they are installed.

JAX_PYTHON  a Python with jax (0.10.2 was tried); by default the tests' own
TF_PYTHON   the same with tensorflow-cpu (2.21.0 was tried)
"""

import json
import os
import signal
import textwrap

import pytest

from support import DDRUN, PYTHON, VENVS, Job, clean_env, has_module, lines_with, some_line, told, until, without_tips

JAX_PYTHON = os.environ.get("JAX_PYTHON", PYTHON)
TF_PYTHON = os.environ.get("TF_PYTHON", PYTHON)
SIMULATED = ["--simulate-nodes=2", "--nproc-per-node=2"]

pytestmark = pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built")


def ours(**extra):
    env = clean_env(**extra)
    for name in ("TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_LOCAL_DEVICE_IDS"):
        if name not in extra:
            env.pop(name, None)
    return env


def script(tmp_path, text):
    path = tmp_path / "worker.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


PRINT_ENV = """
    import json, os
    print(json.dumps(dict(os.environ)) + "\\n", end="", flush=True)
"""


def environments(job):
    """Return the environments that PRINT_ENV has printed, by round and rank."""
    found = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda e: (int(e["DDRUN_ROUND"]), int(e["RANK"])))


def test_jax_has_one_coordinator_that_nobody_listens_on(tmp_path):
    with Job(*SIMULATED, "--framework=jax", script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 0, job.err
        envs = environments(job)
        assert len({e["JAX_COORDINATOR_ADDRESS"] for e in envs}) == 1
        assert envs[0]["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)[1] != envs[0]["MASTER_PORT"]
        assert [(e["SLURM_PROCID"], e["SLURM_LOCALID"], e["SLURM_NTASKS"]) for e in envs] == [
            ("0", "0", "4"), ("1", "1", "4"), ("2", "0", "4"), ("3", "1", "4")]
        job.assert_nothing_left()


def test_without_being_asked_ddrun_claims_no_slurm_and_keeps_the_users_coordinator(tmp_path):
    with Job("--nproc-per-node=2", script(tmp_path, PRINT_ENV), env=ours(JAX_COORDINATOR_ADDRESS="mine:7")) as job:
        assert job.wait() == 0, job.err
        for e in environments(job):
            assert e["JAX_COORDINATOR_ADDRESS"] == "mine:7"
            assert not [name for name in e if name.startswith("SLURM_")]


def test_the_coordinator_moves_with_every_round(tmp_path):
    worker = script(tmp_path, PRINT_ENV + """
    raise SystemExit(os.environ["DDRUN_ROUND"] == "0" and os.environ["RANK"] == "0")
    """)
    with Job(*SIMULATED, "--max-restarts=1", worker, env=ours()) as job:
        assert job.wait() == 0, job.err
        seen = {(e["DDRUN_ROUND"], e["JAX_COORDINATOR_ADDRESS"]) for e in environments(job)}
        assert len(seen) == 2 and len({address for _, address in seen}) == 2, seen
        job.assert_nothing_left()


def test_an_unknown_framework_is_refused():
    with Job("--framework=jaxx", "true", env=ours()) as job:
        assert job.wait() == 2
        assert "'jaxx'" in job.err and "jax" in job.err


JAX_PSUM = """
    import os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils
    jax.distributed.initialize()
    if os.environ["DDRUN_ROUND"] == "0" and os.environ["RANK"] == sys.argv[1]:
        os.abort()
    total = multihost_utils.process_allgather(jnp.asarray(float(jax.process_index() + 1))).sum()
    print(f"sum={total:.0f} of {jax.process_count()} at {jax.process_index()}={os.environ['RANK']}\\n", end="", flush=True)
    jax.distributed.shutdown()
"""


@pytest.mark.skipif(not has_module(JAX_PYTHON, "jax"), reason=f"no jax for {JAX_PYTHON} (JAX_PYTHON)")
@pytest.mark.parametrize("dies", ["nobody", "0", "3"])
def test_real_jax_initializes_without_arguments(tmp_path, dies):
    options = ["--max-restarts=1", "--shutdown-timeout=5s"] if dies != "nobody" else []
    with Job(*SIMULATED, "--framework=jax", *options, script(tmp_path, JAX_PSUM), dies,
             env=ours(PYTHON_EXEC=JAX_PYTHON)) as job:
        assert job.wait() == 0, job.err
        assert sorted(line for line in job.out.splitlines() if line.startswith("sum=")) == [
            f"sum=10 of 4 at {r}={r}" for r in range(4)]
        job.assert_nothing_left()


JAX_TRAINS_ON = """
    import os, sys, time
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    jax.distributed.initialize()
    open(os.path.join(os.path.dirname(__file__), "begun." + os.environ["RANK"]), "w").close()
    while True:
        time.sleep(0.1)
"""


@pytest.mark.skipif(not has_module(JAX_PYTHON, "jax"), reason=f"no jax for {JAX_PYTHON} (JAX_PYTHON)")
def test_real_jax_trains_on_after_sigterm_and_is_killed_in_time(tmp_path):
    with Job(*SIMULATED, "--framework=jax", "--shutdown-timeout=2s", script(tmp_path, JAX_TRAINS_ON), env=ours(PYTHON_EXEC=JAX_PYTHON)) as job:
        until(lambda: len(list(tmp_path.glob("begun.*"))) == 4, say="initialize()")
        os.kill(job.p.pid, signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM, job.err
        job.assert_nothing_left()


def tf_configs(job):
    return [json.loads(e["TF_CONFIG"]) for e in environments(job)]


def test_tf_config_gives_every_worker_a_port_of_its_own(tmp_path):
    with Job(*SIMULATED, "--tf", script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 0, job.err
        configs = tf_configs(job)
        assert [c["task"] for c in configs] == [{"type": "worker", "index": i} for i in range(4)]
        assert all(c["cluster"] == configs[0]["cluster"] for c in configs)
        addresses = configs[0]["cluster"]["worker"]
        assert len({a.rsplit(":", 1)[1] for a in addresses}) == 4, "simulated nodes share one machine's ports"
        job.assert_nothing_left()


TF_SERVERS = """
    import glob, json, os, socket, sys, time
    told = {n: v for n, v in os.environ.items() if n in ("RANK", "DDRUN_ROUND", "TF_CONFIG", "SLURM_PROCID", "SLURM_NTASKS")}
    print(json.dumps(told) + "\\n", end="", flush=True)
    config = json.loads(os.environ["TF_CONFIG"])
    kind, index = config["task"]["type"], config["task"]["index"]
    open(f"{sys.argv[3]}.{kind}.{index}", "w").close()
    if kind != "evaluator":
        host, port = config["cluster"][kind][index].rsplit(":", 1)
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if os.environ.get("TF_GRPC_REUSE_PORT") == "1":  # as TensorFlow does
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("", int(port)))
        s.listen()
    if kind in sys.argv[1].split(","):
        while True:
            time.sleep(60)
    if kind == "worker":
        s.accept()
    if kind == "chief":
        for address in sum(config["cluster"].values(), []):
            host, port = address.rsplit(":", 1)
            while True:
                try:
                    socket.create_connection((host, int(port))).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
        while len(glob.glob(sys.argv[3] + ".*")) < 4:  # an evaluator has no address
            time.sleep(0.02)
        sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("roles, forever, code", [
    ("chief:1,ps:1,worker:*", "ps,worker", 0),
    ("chief:1,worker:*,evaluator:1", "evaluator", 0),
    ("chief:1,ps:1,worker:*", "ps,worker", 3),
])
def test_servers_end_when_the_chief_has_succeeded(tmp_path, roles, forever, code):
    with Job(*SIMULATED, "--tf", f"--roles={roles}", script(tmp_path, TF_SERVERS), forever, str(code), str(tmp_path / "here"),
             env=ours()) as job:
        assert job.wait() == code, job.err
        configs = tf_configs(job)
        assert "evaluator" not in configs[0]["cluster"]
        assert len(configs) == 4 and [c["task"] for c in configs][0] == {"type": "chief", "index": 0}
        assert ("code 3" in job.err) == (code == 3), job.err
        job.assert_nothing_left()


def test_tf_ports_are_new_after_a_restart(tmp_path):
    worker = script(tmp_path, PRINT_ENV + """
    raise SystemExit(os.environ["DDRUN_ROUND"] == "0" and os.environ["RANK"] == "3")
    """)
    with Job(*SIMULATED, "--tf", "--max-restarts=1", worker, env=ours()) as job:
        assert job.wait() == 0, job.err
        rounds = {}
        for e in environments(job):
            rounds.setdefault(e["DDRUN_ROUND"], set()).update(json.loads(e["TF_CONFIG"])["cluster"]["worker"])
        assert rounds["1"] and not rounds["0"] & rounds["1"]


def test_tf_ports_are_known_to_the_daemon_that_comes_after_a_lost_one(tmp_path):
    worker = script(tmp_path, PRINT_ENV + """
    import time
    if os.environ["DDRUN_ROUND"] == "0":
        open(os.path.join(os.path.dirname(__file__), "begun." + os.environ["RANK"]), "w").close()
        time.sleep(1000)
    """)
    with Job("--simulate-nodes=3", "--nproc-per-node=1", "--tf", "--max-restarts=1", worker, env=ours()) as job:
        until(lambda: len(list(tmp_path.glob("begun.*"))) == 3, say="the first round")
        os.kill(job.processes("ddrund")[0], signal.SIGKILL)
        assert job.wait() == 0, job.err
        configs = [json.loads(e["TF_CONFIG"]) for e in environments(job) if e["DDRUN_ROUND"] != "0"]
        assert [c["task"]["index"] for c in configs] == [0, 1, 2]
        assert len({address for c in configs for address in c["cluster"]["worker"]}) == 3
        job.assert_nothing_left()


def test_a_tf_config_too_long_for_linux_is_said_before_any_worker_starts(tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=3500", "--tf", "--no-python", "touch", str(tmp_path / "started"), env=ours()) as job:
        assert job.wait() == 2, job.err
        assert len(lines_with(job.err, "TF_CONFIG", "7000", "131072")) == 1, job.err
        assert not (tmp_path / "started").exists()
        job.assert_nothing_left()


@pytest.mark.parametrize("args, says", [
    (["--tf", "--roles=chief:1,worker:2", "--nproc-per-node=2"], "3 tasks"),
    (["--tf", "--roles=boss:1"], "'boss:1'"),
    (["--roles=worker:*"], "--tf"),
])
def test_roles_that_cannot_be_are_refused(tmp_path, args, says):
    with Job(*args, script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 2, job.err
        assert job.err.count(says) == 1 and job.out == "", job.err


TF_MWMS = """
    import os
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = int(os.environ["RANK"])

    @tf.function
    def step():
        def mine():
            return tf.distribute.get_replica_context().all_reduce("sum", tf.constant(float(rank + 1)))
        return strategy.run(mine)

    total = float(strategy.experimental_local_results(step())[0])
    print(f"sum={total:.0f} of {strategy.num_replicas_in_sync}\\n", end="", flush=True)
"""


@pytest.mark.skipif(not has_module(TF_PYTHON, "tensorflow"), reason=f"no tensorflow for {TF_PYTHON} (TF_PYTHON)")
def test_real_multi_worker_mirrored_strategy(tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--tf", script(tmp_path, TF_MWMS),
             env=ours(PYTHON_EXEC=TF_PYTHON, KERAS_HOME=str(tmp_path))) as job:
        assert job.wait() == 0, job.err
        assert [line for line in job.out.splitlines() if line.startswith("sum=")] == ["sum=3 of 2"] * 2
        job.assert_nothing_left()


def test_variables_and_commands_for_some_ranks(tmp_path):
    worker = script(tmp_path, PRINT_ENV)
    with Job(*SIMULATED, "--env=all:WHO=everybody", "-xTO_ALL=a:b", "-x", "HOME", "--env", "0,2-3:WHO=some", "--env=1:RANK_IS=$RANK", "--env=3:LOCAL_RANK=77",
             "--wrap", "1-2:env WRAPPED=rank$RANK 'TEXT=a b'", "--wrap=2:env INNER=yes", worker, env=ours()) as job:
        assert job.wait() == 0, job.err
        found = [(e["WHO"], e.get("WRAPPED"), e.get("TEXT"), e.get("INNER")) for e in environments(job)]
        assert found == [("some", None, None, None), ("everybody", "rank1", "a b", None), ("some", "rank2", "a b", "yes"),
                         ("some", None, None, None)]
        assert [e["LOCAL_RANK"] for e in environments(job)] == ["0", "1", "0", "77"]
        assert [e["TO_ALL"] for e in environments(job)] == ["a:b"] * 4 and told(job.err) == ""
        job.assert_nothing_left()


def test_libraries_are_preloaded_for_some_ranks(tmp_path):
    """The dynamic linker reports a library that does not exist in the worker, which runs all the same."""
    for name in ("a.so", "b.so", "c.so"):
        (tmp_path / name).write_bytes(b"")
    mine = [str(tmp_path / n) for n in ("a.so", "b.so", "c.so")]
    with Job(*SIMULATED, f"--preload=0,3:{mine[0]}", f"--preload=3:{mine[1]}", "--preload=2:libc.so.6", "--env=3:LD_PRELOAD=" + mine[2],
             script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 0, job.err
        assert [e.get("LD_PRELOAD") for e in environments(job)] == [mine[0], None, "libc.so.6", ":".join(mine)]
        assert "a.so" in job.err, "the dynamic linker has looked at it"
        job.assert_nothing_left()


@pytest.mark.parametrize("rule, says", [("0", "--preload"), ("0:/no/such/lib.so", "/no/such/lib.so")])
def test_a_library_that_cannot_be_preloaded_is_refused(rule, says):
    with Job(f"--preload={rule}", "true", env=ours()) as job:
        assert job.wait() == 2
        assert says in job.err and job.err.count("\n") == 1, job.err


MINDSPORE = """
    import json, os, socket, sys, time
    address = (os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"]))
    workers = int(os.environ["MS_WORKER_NUM"])
    if os.environ["MS_ROLE"] == "MS_SCHED":
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", address[1]))
        s.listen()
        peers = [s.accept()[0] for _ in range(workers)]
        ids = sorted(int(p.makefile().readline()) for p in peers)
        for p in peers:
            p.sendall(b"go\\n")
        ended = [p.recv(1) for p in peers]  # until all have gone, rank 0 among them
        print("scheduler saw", ids, flush=True)
        sys.exit()
    while True:
        try:
            s = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    s.sendall(os.environ["MS_NODE_ID"].encode() + b"\\n")
    assert s.recv(3) == b"go\\n"
    if os.environ["MS_NODE_ID"] == "3":
        time.sleep(0.5)
    sys.exit(int(sys.argv[1]) if os.environ["MS_NODE_ID"] == sys.argv[2] else 0)
"""


@pytest.mark.parametrize("code, rank", [(0, 0), (5, 0), (5, 3)])
def test_mindspores_scheduler_runs_beside_rank_0_until_all_have_ended(tmp_path, code, rank):
    with Job(*SIMULATED, "--framework=mindspore", script(tmp_path, MINDSPORE), str(code), str(rank), env=ours()) as job:
        assert job.wait() == code, job.err
        if code == 0:
            assert job.out == "scheduler saw [0, 1, 2, 3]\n"
        job.assert_nothing_left()


def test_paddle_names_every_worker_with_a_port_of_its_own(tmp_path):
    with Job(*SIMULATED, "--framework=paddle", script(tmp_path, PRINT_ENV), env=ours()) as job:
        assert job.wait() == 0, job.err
        envs = environments(job)
        lists = {e["PADDLE_TRAINER_ENDPOINTS"] for e in envs}
        assert len(lists) == 1 and len(set(lists.pop().split(","))) == 4
        for rank, e in enumerate(envs):
            assert e["PADDLE_TRAINER_ENDPOINTS"].split(",")[rank] == e["PADDLE_CURRENT_ENDPOINT"]
            assert (e["PADDLE_TRAINER_ID"], e["PADDLE_TRAINERS_NUM"], e["PADDLE_RANK_IN_NODE"]) == (str(rank), "4", str(rank % 2))
        assert len({e["PADDLE_MASTER"] for e in envs}) == 1 and "TF_CONFIG" not in envs[0]
        job.assert_nothing_left()


def test_a_wrapped_worker_ends_like_any_other(tmp_path):
    with Job("--nproc-per-node=2", "--wrap=1:no-such-debugger", "--no-python", "sleep", "1000", env=ours()) as job:
        assert job.wait() == 127, job.err
        assert "no-such-debugger" in job.err
        job.assert_nothing_left()


def test_a_variable_that_is_not_there_is_told():
    with Job("--standalone", "-x", "NOT_THERE", "true", env=ours()) as job:
        assert job.wait() == 0
        assert some_line(job.err, "ddrun: warning: ", "NOT_THERE") and len(without_tips(job.err)) == 1, job.err


@pytest.mark.parametrize("option, says", [("--env=1A=b", "'1A=b' is not NAME=VALUE"), ("--env=x:A=b", "x:A=b"),
                                          ("--env=0:A", "'A' is not NAME=VALUE"), ("--wrap=gdb", "--wrap=gdb"), ("--wrap=3-1:gdb", "--wrap=3-1:gdb")])
def test_rules_that_are_none_are_refused(option, says):
    with Job(option, "true", env=ours()) as job:
        assert job.wait() == 2
        assert says in job.err and len(without_tips(job.err)) == 1, job.err


def shown(text):
    """Parse the output of --dry-run: {rank: (arguments, {name: value, or None if it is unset})}"""
    found = {}
    for line in text.splitlines():
        if line == "  for libraries and frameworks:":
            continue
        if line.startswith("rank "):
            argv, env = found.setdefault(int(line[5:-1]), ([], {}))
        elif line.startswith(("  run ", "      ")):
            argv.append(line[6:])
        elif line.startswith("  unset "):
            env[line[8:]] = None
        elif line.startswith("  "):
            name, value = line[2:].split("=", 1)
            env[name] = value
    return found


@pytest.mark.parametrize("options", [
    ["--nproc-per-node=2"],
    ["--nproc-per-node=2", "--tf", "--framework=jax", "--env=1:WHO=me", "--wrap=1:env A=b", "--hang-timeout=60"],
    [*SIMULATED],
])
def test_dry_run_shows_what_the_workers_then_get(tmp_path, options):
    worker = script(tmp_path, PRINT_ENV)
    base = ours(PMI_RANK="0", MASTER_ADDR="stale")
    with Job("--dry-run", *options, worker, "an argument", env=base) as dry, Job(*options, worker, "an argument", env=base) as run:
        assert dry.wait() == 0 and run.wait() == 0, dry.err + run.err
        plan = shown(dry.out)
        envs = environments(run)
        assert sorted(plan) == list(range(len(envs)))
        dry.assert_nothing_left()
    chance = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "DDRUN_TEST_MARK", "TMPDIR", "HOME", "A", "_", "PWD", "OLDPWD", "SHLVL"}
    for rank, env in enumerate(envs):
        argv, changes = plan[rank]
        assert argv[-2:] == [worker, "an argument"]
        assert changes["PMI_RANK"] is None
        real = {n for n, v in env.items() if base.get(n) != v} | {n for n in base if n not in env}
        assert real - chance == set(changes) - chance
        for name in real - chance:
            if "<" not in (changes[name] or "") and name != "NCCL_HOSTID":  # an address that depends on the job
                assert env.get(name) == changes[name], name


def test_dry_run_of_several_nodes_says_what_it_cannot_know(tmp_path):
    worker = script(tmp_path, PRINT_ENV)
    with Job("--dry-run", "--nnodes=3", "--node-rank=1", "--master-addr=head.example", "--master-port=31234",
             "--nproc-per-node=2", worker, env=ours()) as job:
        assert job.wait() == 0, job.err
        plan = shown(job.out)
        assert sorted(plan) == [2, 3]
        assert plan[3][1]["MASTER_ADDR"] == "<address of head.example>"
        assert plan[3][1]["MASTER_PORT"] == "31234" and plan[3][1]["WORLD_SIZE"] == "6"
        assert "WORLD_SIZE=" in job.out


def test_dry_run_refuses_what_the_run_would_refuse(tmp_path):
    with Job("--dry-run", str(tmp_path / "nothing.py"), env=ours()) as job:
        assert job.wait() == 2 and "nothing.py" in job.err and job.out == ""


PADDLE = """
import os
import paddle
import paddle.distributed as dist

dist.init_parallel_env()
layer = paddle.DataParallel(paddle.nn.Linear(2, 1))
layer(paddle.full([4, 2], float(dist.get_rank() + 1))).sum().backward()
total = paddle.to_tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
gradient = layer.parameters()[0].grad.numpy().ravel().tolist()
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item():g} gradient {gradient}\\n".encode())
"""

REAL_MINDSPORE = """
import os
import mindspore as ms
from mindspore import Tensor, ops
from mindspore.communication import get_group_size, get_rank, init

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
init()
if os.environ["MS_ROLE"] == "MS_WORKER":
    total = ops.AllReduce()(Tensor([float(get_rank() + 1)], ms.float32))
    os.write(1, f"rank {get_rank()} of {get_group_size()}: sum {float(total.asnumpy()[0]):g}\\n".encode())
"""


def real(framework, text, tmp_path):
    python = os.path.join(VENVS, f"venv-{framework}", "bin", "python")
    if not (os.path.exists(python) and has_module(python, framework)):
        pytest.skip(f"no {framework} in {VENVS} (contrib/check --all)")
    with Job("--simulate-nodes=2", "--nproc-per-node=1", f"--framework={framework}", script(tmp_path, text),
             env=ours(PYTHON_EXEC=python)) as job:
        job.wait()
        assert job.p.returncode == 0, job.err
        return sorted(line for line in job.out.splitlines() if line.startswith("rank "))


@pytest.mark.large
def test_real_paddle_averages_gradients_over_two_nodes(tmp_path):
    assert real("paddle", PADDLE, tmp_path) == [f"rank {r} of 2: sum 3 gradient [6.0, 6.0]" for r in range(2)]


@pytest.mark.large
def test_real_mindspore_sums_over_two_nodes(tmp_path):
    assert real("mindspore", REAL_MINDSPORE, tmp_path) == [f"rank {r} of 2: sum 3" for r in range(2)]
