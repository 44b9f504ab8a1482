"""The real TensorFlow under ddrun: every strategy that has workers, and the ends of its jobs.

TF_PYTHON  a Python with tensorflow-cpu (2.21.0 was tried); contrib/check --all installs one
"""

import os
import signal
import textwrap

import pytest

from support import DDRUN, Job, has_module, json_lines, until
from test_frameworks import TF_PYTHON, ours, script
from test_slurm import slurm  # noqa: F401

pytestmark = [pytest.mark.skipif(not os.access(DDRUN, os.X_OK), reason=f"{DDRUN} is not built"),
              pytest.mark.skipif(not has_module(TF_PYTHON, "tensorflow"), reason=f"no tensorflow for {TF_PYTHON} (TF_PYTHON)")]

BEGIN = """
    import json, os, sys, time
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf
    here = os.path.dirname(__file__)
    round, rank = os.environ.get("DDRUN_ROUND"), int(os.environ.get("RANK", "0"))

    def say(**what):
        print(json.dumps({"round": round, "rank": rank, **what}) + "\\n", end="", flush=True)

    def mark(name):
        open(os.path.join(here, name), "w").close()

    def there(name):
        return os.path.exists(os.path.join(here, name))
"""

MWMS = BEGIN + """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def add(number):
        def mine():
            return tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0) * number)
        return strategy.run(mine)

    total = float(strategy.experimental_local_results(add(float(rank + 1)))[0])
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    say(total=total, replicas=strategy.num_replicas_in_sync, visible=visible, task=task)
    mark(f"begun.{round}.{rank}")
    while sys.argv[1:] == ["forever"] and round == "0":
        add(1.0)
"""


def tf_env(tmp_path, **more):
    return ours(PYTHON_EXEC=TF_PYTHON, KERAS_HOME=str(tmp_path), PYTHONDONTWRITEBYTECODE="1", **more)


@pytest.mark.parametrize("options, gpus, masks", [
    (["--simulate-nodes=2"], "0,1", ["0", "1"]),                                # a GPU each
    (["--simulate-nodes=3", "--nproc-per-node=1"], "0,1,2,3,4,5", ["0,1", "2,3", "4,5"]),  # one worker has all of its node
    (["--simulate-nodes=2"], "4,5,6,7", ["4", "5", "6", "7"]),                  # one worker per GPU, masked
])
def test_mirrored_over_workers(tmp_path, options, gpus, masks):
    with Job(*options, "--tf", script(tmp_path, MWMS), env=tf_env(tmp_path, CUDA_VISIBLE_DEVICES=gpus)) as job:
        assert job.wait() == 0, job.err
        said = sorted(json_lines(job.out), key=lambda e: e["rank"])
        n = len(masks)
        assert [(e["total"], e["replicas"], e["visible"]) for e in said] == [(n * (n + 1) / 2, n, mask) for mask in masks]
        assert [e["task"] for e in said] == [{"type": "worker", "index": i} for i in range(n)]
        job.assert_nothing_left()


def test_a_lost_worker_of_mirrored_makes_all_begin_again(tmp_path):
    """One restarted task cannot rejoin: TensorFlow's other tasks reject it as a new incarnation."""
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--tf", "--max-restarts=1", "--shutdown-timeout=5s", script(tmp_path, MWMS),
             "forever", env=tf_env(tmp_path)) as job:
        until(lambda: (tmp_path / "begun.0.0").exists() and (tmp_path / "begun.0.1").exists(), say="the first round")
        os.kill(next(pid for pid in job.workers() if rank_of(pid) == "1"), signal.SIGKILL)
        assert job.wait() == 0, job.err
        assert sorted((e["rank"], e["total"]) for e in json_lines(job.out) if e["round"] == "1") == [(0, 3), (1, 3)]
        job.assert_nothing_left()


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return dict(line.split("=", 1) for line in f.read().decode().split("\0") if "=" in line).get("RANK")


def test_mirrored_trains_on_after_sigterm_and_is_killed_in_time(tmp_path):
    with Job("--simulate-nodes=2", "--nproc-per-node=1", "--tf", "--shutdown-timeout=2s", script(tmp_path, MWMS), "forever",
             env=tf_env(tmp_path)) as job:
        until(lambda: (tmp_path / "begun.0.0").exists() and (tmp_path / "begun.0.1").exists(), say="the first round")
        os.kill(job.p.pid, signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM, job.err
        job.assert_nothing_left()


SERVERS = BEGIN + """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    kind, index = resolver.task_type, resolver.task_id
    if kind in ("worker", "ps"):
        server = tf.distribute.Server(resolver.cluster_spec(), job_name=kind, task_index=index, protocol="grpc", start=True)
        mark(f"{kind}{index}.{round}")
        if kind == "worker" and index == 1 and round == "0" and sys.argv[1:] == ["lose"]:
            while not there("trained"):
                time.sleep(0.01)
            os.kill(os.getpid(), 9)
        server.join()
    elif kind == "evaluator":
        mark(f"evaluator.{round}")
        while True:  # it looks for checkpoints until it is ended
            time.sleep(60)
    while not there(f"evaluator.{round}"):
        time.sleep(0.01)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step():
        v.assign_add(1.0)

    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    say(steps=float(v.numpy()), on=v.device, cluster={k: len(a) for k, a in resolver.cluster_spec().as_dict().items()})
    if round == "0":
        mark("trained")
    while sys.argv[1:] == ["lose"] and round == "0":  # as the end of this interpreter would, when a worker is lost
        time.sleep(60)
"""
ROLES = "--roles=chief:1,ps:1,worker:*,evaluator:1"


def check_parameter_servers(job, round="0"):
    said = [e for e in json_lines(job.out) if e["round"] == round]
    assert [(e["rank"], e["steps"], e["cluster"]) for e in said] == [(0, 20, {"chief": 1, "ps": 1, "worker": 2})], job.err
    assert "/job:ps/" in said[0]["on"]


def test_parameter_servers_and_the_evaluator_end_with_the_chief(tmp_path):
    with Job("--simulate-nodes=5", "--nproc-per-node=1", "--tf", ROLES, script(tmp_path, SERVERS), env=tf_env(tmp_path)) as job:
        assert job.wait() == 0, job.err
        check_parameter_servers(job)
        job.assert_nothing_left()


def test_a_lost_worker_of_a_parameter_server_job_makes_all_begin_again(tmp_path):
    """The chief finishes its steps and then hangs; the job does not wait for it."""
    with Job("--nproc-per-node=5", "--tf", ROLES, "--max-restarts=1", script(tmp_path, SERVERS), "lose", env=tf_env(tmp_path)) as job:
        assert job.wait() == 0, job.err
        check_parameter_servers(job)
        check_parameter_servers(job, "1")
        job.assert_nothing_left()


LOCAL = BEGIN + """
    assert "TF_CONFIG" not in os.environ
    for kind in (tf.distribute.MirroredStrategy, tf.distribute.experimental.CentralStorageStrategy):
        strategy = kind()
        with strategy.scope():
            v = tf.Variable(1.0)
        strategy.run(lambda: v.assign_add(float(rank)))
        say(kind=kind.__name__, replicas=strategy.num_replicas_in_sync, v=float(v.numpy()))
"""


def test_strategies_of_one_process_need_nothing(tmp_path):
    """Two workers run at a time, as for two trials, and do not know each other."""
    with Job("--nproc-per-node=2", script(tmp_path, LOCAL), env=tf_env(tmp_path)) as job:
        assert job.wait() == 0, job.err
        assert sorted((e["kind"][:7], e["rank"], e["replicas"], e["v"]) for e in json_lines(job.out)) == [
            ("Central", 0, 1, 1), ("Central", 1, 1, 2), ("Mirrore", 0, 1, 1), ("Mirrore", 1, 1, 2)]
        job.assert_nothing_left()


RESOLVER = """
    import json, os
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False)
    cluster = resolver.cluster_spec().as_dict()
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)

    @tf.function
    def add():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(resolver.task_id + 1.0)))

    total = float(strategy.experimental_local_results(add())[0])
    print(json.dumps({"rank": int(os.environ["RANK"]), "task": resolver.task_id, "total": total, "cluster": cluster}) + "\\n", end="",
          flush=True)
"""


def test_slurms_resolver_finds_the_workers_under_srun(slurm):  # noqa: F811
    worker = slurm.file("resolver.py", textwrap.dedent(RESOLVER))
    job = slurm.run("--nproc-per-node=2", worker, srun=("-N2", "-n2", "--ntasks-per-node=1"), env=slurm_env(slurm))
    assert job.rc == 0, job.err
    said = sorted(json_lines(job.out), key=lambda e: e["rank"])
    assert [(e["rank"], e["task"], e["total"]) for e in said] == [(r, r, 10) for r in range(4)]
    assert said[0]["cluster"] == {"worker": ["node1:8888", "node1:8889", "node2:8888", "node2:8889"]}


def slurm_env(slurm):  # noqa: F811
    return {"PYTHON_EXEC": TF_PYTHON, "KERAS_HOME": slurm.place, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("nodes", [2, 3])
def test_mirrored_over_the_nodes_of_a_step(slurm, nodes):  # noqa: F811
    worker = slurm.file("mwms.py", textwrap.dedent(MWMS))
    job = slurm.run("--nproc-per-node=1", "--tf", worker, srun=(f"-N{nodes}",), env=slurm_env(slurm))
    assert job.rc == 0, job.err
    said = sorted(json_lines(job.out), key=lambda e: e["rank"])
    assert [(e["rank"], e["total"], e["replicas"]) for e in said] == [(r, nodes * (nodes + 1) / 2, nodes) for r in range(nodes)]


def test_parameter_servers_on_the_nodes_of_a_step(slurm):  # noqa: F811
    """Five tasks: two agents share the first node."""
    worker = slurm.file("servers.py", textwrap.dedent(SERVERS))
    job = slurm.run("--nnodes=5", "--nproc-per-node=1", "--tf", ROLES, worker, srun=("-N4", "-n5", "--overcommit"), env=slurm_env(slurm))
    assert job.rc == 0, job.err
    check_parameter_servers(job)
