"""A virtual environment in a directory that all nodes see, for tests of --stage with --warm."""

import os
import subprocess

from support import PYTHON, lines_with

HEAVY = """
import os, socket
import torch
import torch.nn.parallel
with open(os.environ["IMPORTS"], "a") as f:
    f.write("%s %d %d\\n" % (socket.gethostname().partition(".")[0], os.getpid(), os.stat(__file__).st_ino))
"""


class WarmVenv:
    """Its module `heavy` imports PyTorch and records each process that imports it: node, pid, inode of the module."""

    def __init__(self, place):
        top = os.path.join(place, "venv")
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", top], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages, own = (subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
                         for python in (PYTHON, f"{top}/bin/python"))
        with open(f"{own}/torch.pth", "w", encoding="utf-8") as f:
            f.write(packages + "\n")
        with open(f"{own}/heavy.py", "w", encoding="utf-8") as f:
            f.write(HEAVY)
        self.module = f"{own}/heavy.py"
        self.record = os.path.join(place, "imports")
        self.env = {"PYTHON_EXEC": f"{top}/bin/python", "IMPORTS": self.record}
        self.options = (f"--stage={top}", "--warm=heavy")

    def imports(self):
        with open(self.record, encoding="utf-8") as f:
            return [(node, int(pid), int(inode)) for node, pid, inode in map(str.split, f)]

    def worker(self, cluster, node):
        """Return the pid, as in the machine, of a worker that was forked there."""
        interpreters = {pid for name, pid, _ in self.imports() if name == node}
        found = [p.pid for p in cluster.processes(node)
                 if p.cmdline.startswith(self.env["PYTHON_EXEC"]) and p.pid not in interpreters]
        assert len(found) == 1, cluster.processes(node)
        return found[0]

    def assert_imported_once_on(self, nodes, err):
        """Assert that each node has imported the module once, in its own copy, in all rounds together."""
        assert sorted(node for node, _, _ in self.imports()) == nodes, err
        assert os.stat(self.module).st_ino not in {inode for _, _, inode in self.imports()}, err
        assert len(lines_with(err, "staged ")) == len(nodes), err
