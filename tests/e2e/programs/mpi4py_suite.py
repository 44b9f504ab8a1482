"""Run modules of mpi4py's own tests: mpi4py_suite.py TEST_DIRECTORY REGEX. Each rank prints its counts on one line."""

import json
import os
import sys

directory, modules = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, directory)
import main as suite  # noqa: E402


class Counted(suite.TestProgram):
    def runTests(self):
        try:
            super().runTests()
        finally:
            failed = [str(test) for test, _ in self.result.failures + self.result.errors]
            line = json.dumps({"run": self.result.testsRun, "skipped": len(self.result.skipped), "failed": sorted(failed)})
            os.write(1, line.encode() + b"\n")  # whole, among those of other ranks


Counted(module=None, argv=[os.path.join(directory, "main.py"), "-q", "--no-builddir", "-i", modules])
