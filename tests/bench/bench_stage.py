#!/usr/bin/env python3
"""--stage: how often a directory is opened and how long its copies take, for several simulated nodes; a copy and the unpacking of an archive
against tar x of the same files, in turn; and a job that finds a kept copy against one without --stage.

The directory has FILES modules of some KiB in packages of 50. Its opens are counted by inotify. Copies lie in /dev/shm, as the directory
itself, so the times are those of ddrun and not of a disk; all simulated nodes share the CPUs of this machine.

    tests/bench/bench_stage.py [--files 4000] [--nodes 1,2,8] [--runs 3]
"""

import argparse
import ctypes
import os
import re
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DDRUN_BUILD", os.path.join(HERE, "..", "..", "build")))
DDRUN = os.path.join(BUILD, "ddrun")
IN_OPEN, IN_NONBLOCK, IN_ISDIR, IN_Q_OVERFLOW = 0x20, 0o4000, 0x40000000, 0x4000


class Opens:
    """Counts the opens of files below a directory."""

    def __init__(self, top):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(IN_NONBLOCK)
        for where, _, _ in os.walk(top):
            if libc.inotify_add_watch(self.fd, os.fsencode(where), IN_OPEN) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self.take()

    def take(self):
        count = 0
        while True:
            try:
                data = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                return count
            at = 0
            while at < len(data):
                _, mask, _, length = struct.unpack_from("iIII", data, at)
                if mask & IN_Q_OVERFLOW:
                    raise OSError("the queue of inotify is full: raise fs.inotify.max_queued_events")
                count += mask & (IN_OPEN | IN_ISDIR) == IN_OPEN
                at += 16 + length


def fill(top, files):
    for i in range(files):
        where = os.path.join(top, f"package{i // 50}")
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, f"module{i % 50}.py"), "w", encoding="ascii") as f:
            f.write("".join(f"value_{k} = {i * k}\n" for k in range(50 + i % 400)))


def stage(top, nodes, *name):
    began = time.monotonic()
    path = ":".join((top, *name))
    done = subprocess.run([DDRUN, "--no-config", f"--simulate-nodes={nodes}", "--nproc-per-node=1", "--log-level=info", f"--stage={path}",
                           "--stage-dir=/dev/shm", "--no-python", "true"], capture_output=True, text=True, check=True)
    copies = [float(s) for s in re.findall(r"staged .* MiB in ([0-9.]+) s", done.stderr)]
    assert len(copies) == nodes, done.stderr
    return time.monotonic() - began, max(copies)


def kept(top, place):
    """What the first job with --stage-keep takes, and what a later one takes longer than a job without --stage."""
    def job(*options):
        began = time.monotonic()
        done = subprocess.run([DDRUN, "--no-config", "--nproc-per-node=1", "--log-level=info", *options, "--no-python", "true"],
                              capture_output=True, text=True, check=True)
        return time.monotonic() - began, "used the kept copy" in done.stderr

    options = [f"--stage={top}", f"--stage-dir={place}", "--stage-keep"]
    first, found = job(*options)
    assert not found
    later = []
    for _ in range(9):
        took, found = job(*options)
        assert found
        later.append(took - job()[0])
    return first, statistics.median(later)


def tar(archive, place):
    with tempfile.TemporaryDirectory(dir=place) as to:
        began = time.monotonic()
        subprocess.run(["tar", "xf", archive, "-C", to], check=True)
        return time.monotonic() - began


def against_tar(source, archives, place, runs):
    """Medians of a copy of the directory, and of each archive when it is unpacked by ddrun and by tar x, in turn."""
    name = os.path.join(place, "unpacked")
    os.mkdir(name)
    took = [[stage(source, 1)[1], *(t for a in archives for t in (stage(a, 1, name)[1], tar(a, place)))] for _ in range(runs)]
    return [statistics.median(t[i] for t in took) for i in range(1 + 2 * len(archives))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--files", type=int, default=4000)
    p.add_argument("--nodes", default="1,2,8")
    p.add_argument("--runs", type=int, default=3)
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        source = os.path.join(top, "source")
        fill(source, a.files)
        archives = [os.path.join(top, "archive.tar")]
        subprocess.run(["tar", "cf", archives[0], "-C", source, "."], check=True)
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", archives[0]], check=True)
            archives.append(archives[0] + ".zst")
        opens = Opens(source)
        print(f"{'nodes':>6} {'opens of files':>15} {'slowest copy s':>15} {'whole job s':>12}")
        for nodes in map(int, a.nodes.split(",")):
            counts, runs = [], []
            for _ in range(a.runs):
                opens.take()
                runs.append(stage(source, nodes))
                counts.append(opens.take())
            job, copy = (statistics.median(r[i] for r in runs) for i in (0, 1))
            print(f"{nodes:>6} {max(counts):>15} {copy:>15.2f} {job:>12.2f}", flush=True)
        place = os.path.join(top, "place")
        os.mkdir(place)
        opens.take()
        first, later = kept(source, place)
        print(f"--stage-keep: first job {first:.2f} s, later ones {later * 1000:.0f} ms longer than without --stage")
        copy, *unpacked = against_tar(source, archives, top, 3 * a.runs)
        print(f"one node: copy {copy:.2f} s")
        for archive, ours, theirs in zip(archives, unpacked[::2], unpacked[1::2]):
            print(f"{os.path.basename(archive)}: unpacked in {ours:.2f} s, by tar x in {theirs:.2f} s, {theirs / ours:.1f} times as long")
        print(f"tar x of archive.tar takes {unpacked[1] / copy:.1f} times as long as the copy of the directory")


if __name__ == "__main__":
    main()
