"""The temporary cluster itself, as far as the end-to-end tests rely on it."""

import os
import signal
import subprocess
import sys

import pytest

import cluster as cluster_module
from cluster import BASE, Cluster, ClusterError, Options, clusters, sweep, until
from machine import LIMIT
from proc import Ident
from slurm import Slurm

HERE = os.path.dirname(os.path.abspath(__file__))


def machine_wide():
    """Return what a cluster must not change on the host. (A mount can keep a namespace after its processes have ended.)"""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        mounts = f.read()
    return mounts, sorted(os.listdir("/sys/class/net")), os.path.exists("/run/netns"), os.path.exists("/etc/netns")


def running(made):
    return {ident for machine in made.machines.values() for ident in (machine.init, machine.keeper)}


def test_up_and_down_three_times_leave_nothing(_can_cluster):
    before = machine_wide()
    for _ in range(3):
        with Cluster(Options(nodes=2)) as made:
            made.run(["srun", "-N2", "true"])
            job = made.popen(["srun", "-N2", "sh", "-c", "echo here; sleep 1000"])
            job.wait_for("here")
            idents = running(made) | {Ident.of(p.outer) for name in made.machines for p in made.all_processes(name)}
            idents.discard(None)
        job.close()
        assert made.tag not in clusters() and not os.path.exists(made.base)
        assert len(idents) > 12 and not [i for i in idents if Ident.of(i.pid) == i]  # nor a zombie
        assert machine_wide() == before


def test_a_killed_owner_leaves_nothing_after_the_next_sweep(_can_cluster):
    code = ("import sys, time; sys.path.insert(0, sys.argv[1]); from cluster import *\n"
            "c = Cluster(Options(nodes=1)).up(); print(c.tag, flush=True); time.sleep(1000)")
    with subprocess.Popen([sys.executable, "-c", code, HERE], stdout=subprocess.PIPE, text=True) as owner:
        tag = owner.stdout.readline().strip()
        idents = running(Cluster.attach(tag))
        assert all(i.alive() for i in idents)
        owner.kill()
    sweep()
    assert tag not in clusters() and not any(i.alive() for i in idents)


def test_an_owner_killed_while_starting_leaves_nothing_either(_can_cluster):
    """The delay before the kill grows from step to step, to cover the whole start."""
    code = ("import sys; sys.path.insert(0, sys.argv[1]); from cluster import *\n"
            "c = Cluster(Options(nodes=1), sys.argv[2]); print(flush=True); c.up()")
    for step in range(12):
        tag = f"half{os.getpid()}-{step}"
        with subprocess.Popen([sys.executable, "-c", code, HERE, tag], stdout=subprocess.PIPE) as owner:
            owner.stdout.readline()
            try:
                owner.wait(step * 0.02)
            except subprocess.TimeoutExpired:
                pass
            owner.kill()
        sweep()
        assert tag not in clusters()
        until(lambda tag=tag: not [p for p in cmdlines() if f"{BASE}/{tag}" in p], LIMIT, cmdlines)


def test_a_cluster_with_a_stopped_command_goes_down_all_the_same(_can_cluster):
    """nsenter stops together with its command, and a machine has ended only when all of its processes are reaped."""
    with Cluster(Options(nodes=1)) as made:
        with made.popen(["sh", "-c", "echo here; kill -STOP $$"], node="node1") as run:
            run.wait_for("here")
            stopped = made.machines["node1"].processes()[0].parent
            until(lambda: " T" in f" {stat(stopped)}", LIMIT, lambda: stat(stopped))
            made.down()
            assert run.wait().rc != 0
    assert made.tag not in clusters()


def stat(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rpartition(")")[2].strip()


def cmdlines():
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                found.append(f.read().replace("\0", " "))
        except OSError:
            pass
    return found


def test_two_clusters_at_once_do_not_meet(_can_cluster):
    with Cluster(Options(nodes=1)) as one, Cluster(Options(nodes=1)) as two:
        for made in (one, two):
            made.run(["sh", "-c", f"echo {made.tag} > /tmp/mark; echo {made.tag} > {made.work}/mark"], node="node1")
        for made in (one, two):
            seen = made.run(["srun", "sh", "-c", f"cat /tmp/mark {made.work}/mark"]).out.split()
            assert seen == [made.tag, made.tag]
    with pytest.raises(ClusterError, match="is down"):
        one.run(["true"])


def test_a_tag_in_use_is_refused(new_cluster):
    made = new_cluster(nodes=1)
    with pytest.raises(ClusterError, match="already up"):
        Cluster(Options(nodes=1), made.tag).up()
    assert made.run(["srun", "hostname"]).out == "node1\n"


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(Slurm.needs, "slurmd", ["no-such-slurmd"])
    assert "no-such-slurmd (Debian package slurmd)" in cluster_module.why_not()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in cluster_module.why_not()


def test_srun_reaches_four_nodes(cluster):
    done = cluster.run(["srun", "-N4", "hostname"])
    assert (done.rc, sorted(done.out.split())) == (0, ["node1", "node2", "node3", "node4"])


def test_sbatch_waits_and_gives_the_exit_code(cluster):
    place = cluster.directory("job", "alice")
    done = cluster.run(["sbatch", "--wait", "-N4", "--output=out", "--wrap",
                        "srun --ntasks-per-node=1 sh -c 'echo $SLURM_PROCID; exit $SLURM_PROCID'"],
                       cwd=place, user="alice")
    with open(f"{place}/out", encoding="utf-8") as f:
        assert sorted(line for line in f.read().split("\n") if line.isdigit()) == ["0", "1", "2", "3"]
    assert done.rc == 3


def test_two_jobs_run_at_once_on_the_same_nodes(cluster):
    script = "echo here; while [ ! -e go ]; do sleep 0.05; done; hostname"
    place = cluster.directory("two")
    with cluster.popen(["srun", "-N4", "sh", "-c", script], cwd=place) as one, \
            cluster.popen(["srun", "-N4", "sh", "-c", script], cwd=place) as two:
        until(lambda: one.out.count("here") == two.out.count("here") == 4, LIMIT, lambda: one.err + two.err)
        open(f"{place}/go", "w", encoding="ascii").close()
        assert sorted(one.wait().out.split()) == sorted(two.wait().out.split())


def test_jobs_of_users_have_their_home_and_no_privilege(cluster):
    script = f"id -un; touch ~/mine && ls ~; head -c1 {cluster.base}/munge.key; grep CapEff /proc/self/status"
    done = cluster.run(["srun", "sh", "-c", script], user="bob")
    assert done.out.split() == ["bob", "mine", "CapEff:", "0" * 16]
    assert "Permission denied" in done.err
    assert cluster.run(["sh", "-c", "ls ~bob"], user="alice").rc != 0


def test_gpus_and_reserved_ports_are_given(cluster, new_cluster):
    show = ["srun", "--gres=gpu:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_STEP_RESV_PORTS"]
    gpus, ports = cluster.run(show).out.split()
    assert gpus == "0,1" and ports.startswith("21")
    assert new_cluster(nodes=1, mpi_ports="").run(show).out.split() == ["0,1"]


def tcp(cluster, source, target, timeout=LIMIT):
    """True if `source` reaches a listener of `target` by TCP."""
    code = "import socket, sys; socket.create_connection((sys.argv[1], 7777), float(sys.argv[2])).close()"
    return cluster.run(["python3", "-c", code, target, str(timeout)], node=source).rc == 0


def test_a_cut_node_cannot_be_reached_until_healed(cluster):
    with cluster.squat("node2", [7777]):
        assert tcp(cluster, "node1", "node2")
        cluster.cut("node2")
        assert not tcp(cluster, "node1", "node2", 2)
        cluster.heal("node2")
        assert tcp(cluster, "node1", "node2")


def test_a_crashed_node_goes_silently_and_slurm_finds_out(cluster):
    with cluster.squat("node1", [7777]) as squatter, \
            cluster.popen(["srun", "-N2", "-w", "node1,node2", "sleep", "1000"]) as job:
        with cluster.popen(["bash", "-c", "exec 3<>/dev/tcp/node1/7777; sleep 1000"], node="node2"):
            squatter.wait_for("guest")
            cluster.crash("node2")
        # The crash sends nothing to node1: its end of the connection stays.
        assert any("7777" in s.local and s.state == "established" for s in cluster.sockets("node1"))
        assert cluster.processes("node2") == [] and cluster.sockets("node2") == []
        until(lambda: cluster.states()["node2"].startswith("down"), LIMIT, cluster.states)
        assert job.wait().rc != 0
    cluster.start("node2")
    cluster.wait_idle()
    assert cluster.run(["srun", "-w", "node2", "hostname"]).out == "node2\n"


def test_slurmd_can_be_killed_without_its_tasks(cluster):
    place = cluster.directory("slurmd")
    script = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo on"
    with cluster.popen(["srun", "-w", "node3", "sh", "-c", script], cwd=place) as job:
        job.wait_for("here")
        cluster.stop_daemon("node3")
        until(lambda: not [p for p in cluster.all_processes("node3") if p.cmdline.startswith("slurmd ")], LIMIT, "dead")
        assert any("sh -c echo here" in p.cmdline for p in cluster.processes("node3"))
        cluster.start_daemon("node3")
        open(f"{place}/go", "w", encoding="ascii").close()
        assert job.wait().out == "here\non\n"


def test_nodes_with_ipv6_only_run_jobs_and_have_no_other_address(new_cluster):
    made = new_cluster(nodes=2, family=6)
    done = made.run(["srun", "-N2", "ip", "-o", "-4", "addr", "show", "scope", "global"])
    assert (done.rc, done.out) == (0, "")
    with made.squat("node2", [7777]):
        assert tcp(made, "node1", made.address("node2")) and tcp(made, "node1", "node2")


def getent(made, node, name):
    return made.run(["getent", "ahosts", name], node=node).out


def addresses(made, node, name):
    return {line.split()[0] for line in getent(made, node, name).splitlines()}


def test_names_lead_where_the_options_say(new_cluster):
    good = new_cluster(nodes=2, own_loopback=True)
    assert addresses(good, "node1", "node2") == {good.address("node2")}
    assert addresses(good, "node1", "node1") == {"127.0.1.1"}
    nowhere = new_cluster(nodes=2, resolve="none")
    assert addresses(nowhere, "node1", "node2") == set()
    both = new_cluster(nodes=2, resolve="both", second="dead")
    assert addresses(both, "node1", "node2") == {both.address("node2"), both.address("node2", "second")}
    with both.squat("node2", [7777]):
        assert tcp(both, "node1", both.address("node2"))
        assert not tcp(both, "node1", both.address("node2", "second"), 2)
    other = new_cluster(nodes=2, names=["gpu-a", "gpu-b"], hostnames=["ip-1", "ip-2"],
                        resolve="second", second="live")
    assert addresses(other, "gpu-a", "gpu-b") == {other.address("gpu-b", "second")}
    assert sorted(other.run(["srun", "-N2", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)"]).out.splitlines()) == [
        "gpu-a ip-1", "gpu-b ip-2"]
    with other.squat("gpu-b", [7777]):
        assert tcp(other, "gpu-a", "gpu-b")


def test_a_test_can_replace_the_hosts_file_of_one_node(cluster):
    cluster.set_hosts("node1", "127.0.0.1 localhost\n10.231.9.9 node2\n")
    assert addresses(cluster, "node1", "node2") == {"10.231.9.9"}
    assert addresses(cluster, "node3", "node2") == {cluster.address("node2")}
    cluster.reset()
    assert addresses(cluster, "node1", "node2") == {cluster.address("node2")}


def test_munge_answers_at_its_usual_place_unless_taken_away(cluster):
    credential = cluster.run(["munge", "-n"], node="node1", user="alice").out
    opened = cluster.run(["sh", "-c", f"echo '{credential}' | unmunge | grep UID"], node="node2")
    assert "alice (20001)" in opened.out
    cluster.munge("node2", False)
    assert cluster.run(["munge", "-n"], node="node2").rc != 0
    assert cluster.run(["srun", "-w", "node2", "hostname"]).out == "node2\n"


def test_a_squatter_is_seen_with_its_port_and_user(cluster):
    before = cluster.sockets("node1")
    with cluster.squat("node1", [7777, 7778], "garbage"):
        new = [s for s in cluster.sockets("node1") if s not in before]
        assert sorted(s.local for s in new) == ["[::]:7777", "[::]:7778"]
        assert [p.uid for p in cluster.processes("node1")] == [65534]
        said = cluster.run(["bash", "-c", "exec 3<>/dev/tcp/node1/7777; head -c 4 <&3 | od -An -tx1"], node="node2")
        assert said.out.split() == ["00", "01", "02", "03"]


def test_what_a_job_leaves_behind_is_found(cluster):
    before = cluster.snapshot()
    cluster.assert_nothing_left(before, 0)
    left = ("import os, socket, time; s = socket.create_server(('', 7779))\n"
            "open('/tmp/left', 'w'); open('/dev/shm/left', 'w'); print('there', os.getpid(), flush=True); time.sleep(1000)")
    with cluster.popen(["python3", "-c", left], node="node2") as run:
        run.wait_for("there")
        pid = int(run.out.split()[1])
        with pytest.raises(ClusterError) as found:
            cluster.assert_nothing_left(before, 0)
        text = str(found.value)
        for word in (f"node2: process {pid}", "node2: tcp 0.0.0.0:7779", "node2: /tmp/left", "node2: /dev/shm/left"):
            assert word in text
        assert "node1" not in text
        assert cluster.kill("node2", pid) and run.wait().rc == -signal.SIGKILL
    cluster.run(["rm", "/tmp/left", "/dev/shm/left"], node="node2")
    cluster.assert_nothing_left(before)


def test_ctrl_c_on_the_terminal_of_srun_ends_the_step(cluster):
    before = cluster.snapshot()
    with cluster.popen(["srun", "-N4", "sh", "-c", "echo here; exec sleep 1000"], tty=True, user="alice") as job:
        until(lambda: job.out.count("here") == 4, LIMIT, lambda: job.err)
        job.interrupt()
        assert job.wait().rc != 0
    cluster.assert_nothing_left(before)


def test_the_command_for_people_does_the_same(_can_cluster):
    tag = f"people{os.getpid()}"

    def dd(*args):
        done = subprocess.run([f"{HERE}/ddcluster", "--tag", tag, *args], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    try:
        assert dd("up", "--nodes", "2") == (0, f"cluster '{tag}' is up: node1, node2; shared directory "
                                               f"{BASE}/{tag}/work\n")
        code, text = dd("exec", "srun", "-N2", "hostname")
        assert (code, sorted(text.split())) == (0, ["node1", "node2"])
        assert dd("exec", "-w", "node1", "-u", "bob", "--", "sh", "-c", "id -un; exit 3") == (3, "bob\n")
        assert dd("crash", "node2")[0] == 0 and "node2\tdown" in dd("status")[1]
        assert dd("start", "node2")[0] == 0 and "node2\tup" in dd("status")[1]
        assert "there is no node 'node9'" in dd("cut", "node9")[1]
    finally:
        code, _ = dd("down")
    assert code == 0 and tag not in clusters()
    assert f"there is no cluster '{tag}'" in dd("status")[1]


def test_a_cluster_that_does_not_come_up_is_made_once_more_and_its_logs_are_shown(new_cluster, monkeypatch, capfd):
    come_up, tags = Cluster._come_up, []

    def fail_once(made):
        come_up(made)
        tags.append(made.tag)
        if len(tags) == 1:
            made.write("log/daemon", "daemon: no memory\n")
            raise ClusterError("not idle")

    monkeypatch.setattr(Cluster, "_come_up", fail_once)
    made = new_cluster(nodes=1)
    said = capfd.readouterr().err
    assert len(tags) == 2 and made.tag == tags[1] and tags[0] not in clusters()
    assert "made once more: not idle" in said and "--- log/daemon\ndaemon: no memory" in said
