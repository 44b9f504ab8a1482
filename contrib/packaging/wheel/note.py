#!/usr/bin/env python3
"""Adds to DIRECTORY/sources.json what is compiled in without a source package, and copies its license to DIRECTORY/NAME/LICENSE.

note.py DIRECTORY ZIGLANG_VERSION ZIGLANG_DIRECTORY NAME=PACKAGE:PATH...

PATH is a header, or a directory of headers, of the installed Debian package PACKAGE, whose source package is NAME. Of
ziglang, its run-time library and its C++ library are compiled in.
"""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys


def digests(path):
    """The SHA-256 of each file at or below the path, by its name from there."""
    top = os.path.dirname(path)
    found = {}
    for file in [path] if os.path.isfile(path) else glob.glob(os.path.join(path, "**"), recursive=True):
        if os.path.isfile(file):
            with open(file, "rb") as f:
                found[os.path.relpath(file, top)] = hashlib.sha256(f.read()).hexdigest()
    return found


def headers(name, package, path):
    version = subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", package], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return {"name": name, "version": version, "newest": version, "files": digests(path)}, f"/usr/share/doc/{package}/copyright"


def libraries_of_zig(version, directory):
    """The run-time library of the compiler, and LLVM's C++ library, which ziglang has as sources."""
    yield {"name": "ziglang", "version": version, "newest": version, "files": {}, "purl": f"pkg:pypi/ziglang@{version}"}, os.path.join(
        directory, "LICENSE")
    with open(os.path.join(directory, "lib/libcxx/include/__config"), encoding="utf-8") as f:
        number = int(re.search(r"^# *define _LIBCPP_VERSION (\d+)$", f.read(), re.M).group(1))
    own = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    yield {"name": "libc++", "version": own, "newest": own, "files": {}, "purl": f"pkg:pypi/ziglang@{version}"}, os.path.join(
        directory, "lib/libcxx/LICENSE.TXT")


def main():
    directory, version, zig, *wanted = sys.argv[1:]
    notes = [headers(name, *where.split(":")) for name, where in (w.split("=") for w in wanted)]
    path = os.path.join(directory, "sources.json")
    with open(path, encoding="utf-8") as f:
        sources = json.load(f)
    for note, license_file in [*notes, *libraries_of_zig(version, zig)]:
        os.makedirs(os.path.join(directory, note["name"]), exist_ok=True)
        shutil.copyfile(license_file, os.path.join(directory, note["name"], "LICENSE"))
        sources.append(note)
        print(f"{note['name']} {note['version']}")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(sources, f, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
