"""python -m ddrun ...: ddrun, with this Python for the workers."""

import os
import sys

from ddrun import find_program

if __name__ == "__main__":
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(find_program(), ["ddrun", *sys.argv[1:]])
