"""Prints this worker's environment as one line of JSON."""
import json
import os
import sys

sys.stdout.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}) + "\n")
