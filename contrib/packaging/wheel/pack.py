#!/usr/bin/env python3
"""Makes a wheel from the directory into which make install has installed; the same files give the same bytes.

pack.py --stage DIRECTORY --sources DIRECTORY --version VERSION --tool NAME=VERSION ... --tag TAG --epoch SECONDS --out DIRECTORY
"""
import argparse
import base64
import hashlib
import json
import os
import sys
import time
import uuid
import zipfile

PACKAGE = "share/ddrun/python/"  # where make install puts the Python package
TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
LICENSES = {"openssl": ("LICENSE.txt", "Apache-2.0"), "libevent": ("LICENSE", "BSD-3-Clause"), "jansson": ("LICENSE", "MIT"),
            "libzstd": ("LICENSE", "BSD-3-Clause"), "uthash": ("LICENSE", "BSD-1-Clause"), "tomlplusplus": ("LICENSE", "MIT"),
            "ziglang": ("LICENSE", "MIT"), "libc++": ("LICENSE", "Apache-2.0 WITH LLVM-exception")}
METADATA = """\
Metadata-Version: 2.4
Name: ddrun
Version: {version}
Summary: torchrun for clusters: starts a training on every node of a job
License-Expression: MIT AND Apache-2.0 AND BSD-3-Clause AND BSD-1-Clause AND (Apache-2.0 WITH LLVM-exception)
{files}Keywords: distributed,training,pytorch,slurm,pbs,launcher
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{text}"""


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def staged(stage, version):
    """The files below usr/ in their places in the wheel: bin as its scripts, the Python package, all others as its data."""
    data = f"ddrun-{version}.data"
    for directory, names, files in os.walk(os.path.join(stage, "usr")):
        names.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            place = os.path.relpath(path, os.path.join(stage, "usr"))
            if place.startswith(PACKAGE):
                yield place[len(PACKAGE):], read(path), 0o644
                continue
            content, mode = read(path), 0o755 if os.access(path, os.X_OK) and not place.endswith(".so.0") else 0o644
            if os.path.islink(path):  # a wheel cannot contain links; the linker accepts this script instead
                content, mode = f"INPUT({os.readlink(path)})\n".encode(), 0o644
            if name == "ddrun.pc":
                content = content.replace(b"prefix=/usr\n", b"prefix=${pcfiledir}/../..\n", 1)
            yield f"{data}/scripts/{name}" if place.startswith("bin/") else f"{data}/data/{place}", content, mode


def component(source):
    name, version = source["name"], source["version"]
    return {"type": "library", "name": name, "version": version, "bom-ref": name,
            "purl": source.get("purl") or f"pkg:deb/debian/{name}@{version.replace('~', '%7E').replace('+', '%2B')}?arch=source",
            "licenses": [{"expression": LICENSES[name][1]}],
            "properties": [{"name": f"sha256:{file}", "value": digest} for file, digest in sorted(source["files"].items())] +
                          ([{"name": "newest", "value": source["newest"]}] if source["newest"] != version else [])}


def bill_of_materials(version, sources, tools, epoch):
    """What was compiled into the programs, as CycloneDX."""
    text = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
                         "tools": {"components": [{"type": "application", "name": name, "version": which} for name, which in tools]},
                         "component": {"type": "application", "name": "ddrun", "version": version, "bom-ref": "ddrun",
                                       "licenses": [{"license": {"id": "MIT"}}]}},
            "components": [component(s) for s in sources],
            "dependencies": [{"ref": "ddrun", "dependsOn": [s["name"] for s in sources]}]}
    identity = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).digest()
    text["serialNumber"] = uuid.UUID(bytes=identity[:16], version=4).urn
    return json.dumps(text, indent=1, sort_keys=True).encode() + b"\n"


def information(a, sources):
    info = f"ddrun-{a.version}.dist-info"
    licenses = {"LICENSE": read(TOP, "LICENSE")}
    for source in sources:
        licenses[f"{source['name']}/LICENSE"] = read(a.sources, source["name"], LICENSES[source["name"]][0])
    files = "".join(f"License-File: {name}\n" for name in licenses)
    yield f"{info}/METADATA", METADATA.format(version=a.version, files=files, text=read(TOP, "README.md").decode()).encode(), 0o644
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: ddrun\nRoot-Is-Purelib: false\nTag: py3-none-{a.tag}\n".encode(), 0o644
    for name, content in licenses.items():
        yield f"{info}/licenses/{name}", content, 0o644
    yield f"{info}/sboms/ddrun.cdx.json", bill_of_materials(a.version, sources, a.tool, a.epoch), 0o644


def record(files, info):
    lines = []
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return f"{info}/RECORD", ("".join(lines) + f"{info}/RECORD,,\n").encode(), 0o644


def main():
    p = argparse.ArgumentParser()
    for name in ("stage", "sources", "version", "tag", "out"):
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--epoch", type=int, required=True)
    p.add_argument("--tool", type=lambda s: tuple(s.split("=")), action="append", default=[])
    a = p.parse_args()
    sources = json.loads(read(a.sources, "sources.json"))
    files = [*staged(a.stage, a.version), *information(a, sources)]
    files.append(record(files, f"ddrun-{a.version}.dist-info"))
    path = os.path.join(a.out, f"ddrun-{a.version}-py3-none-{a.tag}.whl")
    when = time.gmtime(max(a.epoch, 315532800))[:6]  # a zip file knows no time before 1980
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, when)
            entry.create_system, entry.external_attr, entry.compress_type = 3, (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
