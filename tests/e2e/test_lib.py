"""libddrun for its users: installed, found by pkg-config, used by C and C++ programs under ddrun."""

import collections
import errno
import os
import random
import re
import shutil
import signal
import subprocess

import pytest

from support import BUILD, HERE, LIMIT, PYTHON, Job, clean_env, json_lines, program, run
from test_signals import as_slurmstepd, guardian_and_agent

TOP = os.path.dirname(os.path.dirname(HERE))
WORLD = ["--simulate-nodes=4", "--nproc-per-node=4"]
SMALL = ["--simulate-nodes=2", "--nproc-per-node=2"]


def sh(*argv, **how):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False, **how)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


class Installed:
    """An installation by make install, and programs built with it."""

    def __init__(self, place):
        self.place = place
        # DESTDIR, as a packager sets it
        sh("make", "-C", BUILD, "-s", "install", f"DESTDIR={place}/root")
        [found] = [os.path.join(d, "ddrun.pc") for d, _, files in os.walk(f"{place}/root") if "ddrun.pc" in files]
        self.env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(found), PKG_CONFIG_SYSROOT_DIR=f"{place}/root")
        self.libdir = os.path.dirname(os.path.dirname(found))

    def flags(self, *what):
        return sh("pkg-config", *what, "ddrun", env=self.env).split()

    def compile(self, name, source, *options, cc="cc"):
        path = f"{self.place}/{name}"
        sh(cc, *options, source, "-Wall", "-Wextra", "-Werror", "-o", path, *self.flags("--cflags", "--libs"),
           f"-Wl,-rpath,{self.libdir}", "-ldl")
        return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    for tool in ("make", "pkg-config", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on this machine")
    return Installed(str(tmp_path_factory.mktemp("installed")))


@pytest.fixture(scope="module")
def worker(installed):
    return installed.compile("worker", program("libworker.c"), "-std=gnu99", "-pedantic")


def test_hello_of_the_examples_runs_alone_and_under_ddrun(installed):
    hello = installed.compile("hello", f"{TOP}/examples/hello_ddrun.c", "-std=gnu99")
    assert sh(hello, env=clean_env()).startswith("rank 0 of 1: local rank 0 of 1 on node 0 of 1")
    job = run(*SMALL, hello)
    assert job.p.returncode == 0, job.err
    lines = job.out.splitlines()
    assert [line.split(", ")[0] for line in lines] == [
        f"rank {r} of 4: local rank {r % 2} of 2 on node {r // 2} of 2" for r in range(4)]


@pytest.mark.parametrize("how", [
    ("c++", "-std=c++11", "-x", "c++"), ("cc", "-std=gnu99", "-DDDRUN_NOTHING"), ("static",)], ids=lambda how: how[0])
def test_a_program_in_another_way(installed, how):
    cc, *options = how
    if cc == "static":  # libddrun.a
        path = f"{installed.place}/static-worker"
        flags = [f for f in installed.flags("--cflags", "--libs", "--static") if f != "-lddrun"]
        sh("cc", program("libworker.c"), "-o", path, *flags, f"{installed.libdir}/libddrun.a", "-ldl", "-lpthread")
        assert "libddrun" not in sh("ldd", path)
    elif shutil.which(cc) is None:
        pytest.skip(f"no {cc} on this machine (Debian: g++)")
    else:
        path = installed.compile(f"worker-{cc}", program("libworker.c"), *options, cc=cc)
    job = run(*SMALL, path, "turns", "10", "-1", "-1")
    assert job.p.returncode == 0, job.err
    assert sorted(line["rank"] for line in json_lines(job.out)) == [0, 1, 2, 3]


def test_only_libc_is_needed_and_only_its_own_names_are_seen(installed):
    lib = f"{installed.libdir}/libddrun.so.0"
    needed = [line.split("[")[1].rstrip("]") for line in sh("readelf", "-d", lib).splitlines() if "(NEEDED)" in line]
    assert set(needed) <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for path, how in ((lib, "-D"), (f"{installed.libdir}/libddrun.a", "-g")):
        names = [line.split()[-1] for line in sh("nm", how, "--defined-only", path).splitlines() if " T " in line or " D " in line]
        assert len(names) > 20 and all(name.startswith("ddrun_") for name in names), names


def test_a_killed_rank_ends_the_waits_of_all_others_and_the_next_round_works(worker):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    # not in the first turn: a rank that has not begun it may not ignore SIGTERM yet
    rank, turn = chance.randrange(16), chance.randrange(1, 900)
    job = run(*WORLD, "--max-restarts=1", "--shutdown-timeout=60s", worker, "turns", "1000", str(rank), str(turn))
    assert job.p.returncode == 0, job.err
    lines = json_lines(job.out)
    # SIGTERM is ignored and the grace time is a minute: only the library can have ended them
    ended = [line for line in lines if line["round"] == 0]
    assert sorted(line["rank"] for line in ended) == sorted(set(range(16)) - {rank})
    assert all(line["failed"] == -errno.ECANCELED and "round" in line["text"]
               for line in ended), ended
    done = [line for line in lines if line["round"] == 1]
    assert sorted(line["rank"] for line in done) == list(range(16)) and all(line["done"] == 1000 for line in done)


def test_events_reach_the_workers_and_a_stop_leaves_them_time_to_agree(worker):
    # the second round, because each round has events of its own
    second = f"[ $DDRUN_ROUND = 1 ] || exit 3; exec {worker} events"
    with Job(*SMALL, "--max-restarts=1", "--shutdown-timeout=60s", "sh", "-c", second) as job:
        seen = job.line("ready")
        while seen.count("ready") < 4:
            seen += job.line("\n")
        os.kill(job.p.pid, signal.SIGUSR1)
        while seen.count('"signal"') < 4:
            seen += job.line("\n")
        os.kill(job.p.pid, signal.SIGTERM)
        job.wait()
        lines = json_lines(seen + job.out)
        job.assert_nothing_left()
    said = collections.Counter((line.get("event"), line["text"]) for line in lines if "event" in line)
    assert said == {(int(signal.SIGUSR1), "signal"): 4, (int(signal.SIGTERM), "stop"): 4}
    saved = [line for line in lines if "saved" in line]
    assert len(saved) == 4 and all(line["saved"] == 0 for line in saved), saved


def test_a_signal_that_slurm_sends_to_one_node_later_is_one_event(worker, clock):
    """With cgroups, Slurm signals the guardian of each node alone."""
    with Job(*SMALL, "--shutdown-timeout=60s", "--heartbeat=1h", "--log-level=debug", worker, "events", env=clean_env(**clock.env)) as job:
        seen = job.line("ready")
        while seen.count("ready") < 4:
            seen += job.line("\n")
        for node in (0, 1):
            guardian, agent = guardian_and_agent(job, node)
            for _ in as_slurmstepd(signal.SIGUSR1, [guardian]):
                job.errors("event=scheduler-signal signal=10", node + 1)
            while seen.count('"signal"') < 4:
                seen += job.line("\n")
            clock.advance(5)
        os.kill(agent, signal.SIGTERM)  # over the link on which the second report is
        assert job.wait() == 143
        lines = json_lines(seen + job.out)
        job.assert_nothing_left()
    said = collections.Counter((line["event"], line["text"]) for line in lines if "event" in line)
    assert said == {(int(signal.SIGUSR1), "signal"): 4, (int(signal.SIGTERM), "stop"): 4}


def test_a_heartbeat_reaches_the_file_that_ddrun_watches(worker):
    job = run(*SMALL, "--hang-timeout=1h", "--hang-sign=file", worker, "beat")
    assert job.p.returncode == 0, job.err + job.out
    assert sorted((line["rank"], line["beat"]) for line in json_lines(job.out)) == [(rank, 1) for rank in range(4)]


def test_pytorch_in_the_same_worker_is_not_disturbed(installed):
    job = run(*SMALL, program("lib_torch.py"), env=clean_env(LIBDDRUN=f"{installed.libdir}/libddrun.so"))
    assert job.p.returncode == 0, job.err
    assert sorted((line["rank"], line["total"], line["told"]) for line in json_lines(job.out)) == [(r, 10.0, 10) for r in range(4)]
    assert {(line["torch"], line["lib"]) for line in json_lines(job.out)} == {("of torch", "of libddrun")}


# ---- NCCL ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def standin(installed):
    """Return two stand-ins for NCCL: "new" takes several ids, "old" does not."""
    paths = {}
    for name, options in (("new", []), ("old", ["-DOLD"])):
        os.makedirs(f"{installed.place}/{name}", exist_ok=True)
        paths[name] = f"{installed.place}/{name}/libnccl.so.2"
        sh("cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", *options, program("standin_nccl.c"), "-o", paths[name])
    return paths


def nccl(worker, per_id, tries, **env):
    job = run("--simulate-nodes=2", "--nproc-per-node=3", worker, "nccl", str(per_id), str(tries), env=clean_env(**env))
    calls = collections.defaultdict(list)
    for line in json_lines(job.out):
        calls[line["rank"]].append(line)
    return job, calls


def test_nccl_is_asked_for_ids_by_the_first_rank_of_each_block(worker, standin):
    job, calls = nccl(worker, 4, 1, DDRUN_NCCL_LIBRARY=standin["new"])
    assert job.p.returncode == 0, job.err + job.out
    for rank in range(6):
        names = [line.get("call", "said") for line in calls[rank]]
        assert names == ["id"] * (rank in (0, 3)) + ["scalable", "said"], calls[rank]
        assert calls[rank][-2]["ids"] == ["0.0", "3.0"]
        assert calls[rank][-1]["version"] == 23000


def test_an_older_nccl_gets_one_id_and_a_second_try_another(worker, standin):
    job, calls = nccl(worker, 4, 2, DDRUN_NCCL_LIBRARY=standin["old"], STANDIN_FAILS="4")
    assert job.p.returncode == 0, job.err + job.out
    for rank in range(6):
        inits = [line["ids"] for line in calls[rank] if line.get("call") == "init"]
        assert inits == [["0.0"], ["0.1"]]
        assert [line["call"] for line in calls[rank] if line.get("call") == "abort"] == ["abort"]


def test_a_library_that_is_loaded_already_is_taken(installed, standin):
    path = f"{installed.place}/linked-worker"
    sh("cc", program("libworker.c"), "-o", path, *installed.flags("--cflags", "--libs"), f"-Wl,-rpath,{installed.libdir}",
       f"-Wl,--no-as-needed,-rpath,{os.path.dirname(standin['new'])}", standin["new"], "-ldl")
    job, calls = nccl(path, 0, 1, DDRUN_NCCL_LIBRARY="/nowhere/libnccl.so")
    assert job.p.returncode == 0, job.err + job.out
    assert [line["call"] for line in calls[5] if "call" in line] == ["init"]


def test_without_nccl_a_sentence_says_so(worker):
    job, calls = nccl(worker, 0, 1, DDRUN_NCCL_LIBRARY="/nowhere/libnccl.so")
    assert job.p.returncode == 4
    said = [line for lines in calls.values() for line in lines]
    assert said and all(line["failed"] == -errno.ENOENT and "/nowhere/libnccl.so" in line["text"] for line in said)


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """Return a directory with headers of CUDA and NCCL, which may be missing here, as far as the examples need them."""
    place = tmp_path_factory.mktemp("headers")
    (place / "cuda_runtime.h").write_text(
        "#include <stddef.h>\n"
        "typedef enum { cudaSuccess } cudaError_t; typedef struct st *cudaStream_t;\n"
        "enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost };\n"
        "const char *cudaGetErrorString(cudaError_t); cudaError_t cudaStreamCreate(cudaStream_t *);\n"
        "cudaError_t cudaMalloc(void **, size_t); cudaError_t cudaMemset(void *, int, size_t);\n"
        "cudaError_t cudaMemcpy(void *, const void *, size_t, enum cudaMemcpyKind);\n"
        "cudaError_t cudaStreamSynchronize(cudaStream_t); cudaError_t cudaFree(void *);\n"
        "cudaError_t cudaGetDeviceCount(int *); cudaError_t cudaSetDevice(int);\n")
    (place / "nccl.h").write_text(
        "typedef struct ncclComm *ncclComm_t; typedef struct { char internal[128]; } ncclUniqueId;\n"
        "typedef enum { ncclSuccess } ncclResult_t; typedef enum { ncclFloat = 7 } ncclDataType_t;\n"
        "typedef enum { ncclSum } ncclRedOp_t; const char *ncclGetErrorString(ncclResult_t);\n"
        "ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);\n"
        "ncclResult_t ncclCommDestroy(ncclComm_t);\n")
    return str(place)


@pytest.mark.parametrize("cc, options", [("cc", ["-x", "c", "-std=gnu11"]), ("c++", ["-x", "c++", "-std=c++11"])])
def test_the_example_with_nccl_fits_the_headers(installed, headers, cc, options):
    if shutil.which(cc) is None:
        pytest.skip(f"no {cc} on this machine (Debian: g++)")
    sh(cc, *options, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{headers}", *installed.flags("--cflags"),
       f"{TOP}/examples/nccl_allreduce.c")


def test_the_programs_of_the_document_compile(installed, headers, tmp_path):
    with open(f"{TOP}/docs/libddrun.md", encoding="utf-8") as f:
        programs = re.findall(r"^```c\n(.*?)^```$", f.read(), re.M | re.S)
    assert len(programs) == 3
    for i, text in enumerate(programs):
        (tmp_path / f"{i}.c").write_text(text)
        sh("cc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Werror", f"-I{headers}", *installed.flags("--cflags"), f"{tmp_path}/{i}.c")


@pytest.mark.large
def test_the_real_nccl_makes_ids_that_all_ranks_get(worker):
    """Making an id needs no GPU."""
    found = sh(PYTHON, "-c", "import importlib.util as u; s = u.find_spec('nvidia'); "
               "print(list(s.submodule_search_locations)[0] if s else '')").strip()
    lib = os.path.join(found, "nccl", "lib", "libnccl.so.2")
    lib = os.environ.get("DDRUN_TEST_NCCL", lib)
    if not os.path.exists(lib):
        pytest.skip("no NCCL of PyPI in this Python environment (nvidia-nccl-cu12)")
    job, calls = nccl(worker, 3, 0, DDRUN_NCCL_LIBRARY=lib, NCCL_SOCKET_IFNAME="lo")
    assert job.p.returncode == 0, job.err + job.out
    said = {line[0]["text"] for line in calls.values()}
    assert len(calls) == 6 and len(said) == 1, calls
    assert all(line[0]["version"] > 22300 for line in calls.values()) and said.pop().startswith("2 ")
