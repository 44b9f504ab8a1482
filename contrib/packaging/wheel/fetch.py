#!/usr/bin/env python3
"""Fetches and unpacks Debian source packages of the release for which this machine's apt is configured.

fetch.py [--older] DIRECTORY PACKAGE...

Unpacks each package in DIRECTORY/PACKAGE, and writes versions and digests to DIRECTORY/sources.json. Fails if a file does not
have the digest that the signed index of the release lists. --older: if a file of the newest version cannot be downloaded,
takes the version before it, and reports that on stderr.
"""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request


class Apt:
    """apt with a configuration and package lists of its own, which cover source packages only; the machine's stay unchanged."""

    def __init__(self, directory):
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
        for path in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*")]:
            self.copy_source_list(path, os.path.join(directory, "parts"))
        config = os.path.join(directory, "apt.conf")
        with open(config, "w", encoding="utf-8") as f:
            f.write(f'Dir::State::lists "{directory}/lists";\nDir::Cache "{directory}/cache";\nDir::Etc::sourcelist "/dev/null";\n'
                    f'Dir::Etc::sourceparts "{directory}/parts";\n')
        self.env = {**os.environ, "APT_CONFIG": config, "LC_ALL": "C"}
        self.run("apt-get", "-qq", "update")

    @staticmethod
    def copy_source_list(path, parts):
        """Copies one of the machine's source lists to the directory `parts`, changed to source packages."""
        if not path.endswith((".list", ".sources")) or not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as f:
            text = f.read()
        text = (re.sub(r"^Types:.*\bdeb\b.*$", "Types: deb-src", text, flags=re.M) if path.endswith(".sources") else
                re.sub(r"^deb\s", "deb-src ", text, flags=re.M))
        with open(os.path.join(parts, os.path.basename(path)), "w", encoding="utf-8") as f:
            f.write(text)

    def run(self, *command):
        return subprocess.run(command, env=self.env, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout

    def versions(self, name):
        """The versions of a source package, newest first."""
        stanzas = self.run("apt-cache", "showsrc", "--only-source", name).split("\n\n")
        found = {re.search(r"^Version: (.*)$", s, re.M).group(1) for s in stanzas if f"Package: {name}\n" in s}
        newest = []
        for version in found:
            at = next((i for i, other in enumerate(newest) if subprocess.run(
                ["dpkg", "--compare-versions", version, "gt", other], check=False).returncode == 0), len(newest))
            newest.insert(at, version)
        return newest

    def files(self, name, version):
        """(URL, file name, SHA-256) of each file of the package, from the signed index."""
        text = self.run("apt-get", "-qq", "source", "--download-only", "--print-uris", f"{name}={version}")
        return re.findall(r"^'([^']+)' (\S+) \d+ SHA256:([0-9a-f]{64})$", text, re.M)


def digest_of(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def download(url, path, digest):
    if os.path.exists(path) and digest_of(path) == digest:
        return
    with urllib.request.urlopen(url, timeout=300) as response, open(path, "wb") as f:
        shutil.copyfileobj(response, f)
    if digest_of(path) != digest:
        os.unlink(path)
        sys.exit(f"fetch.py: {url} does not have the digest of the release's index")


def fetch(apt, name, directory, older):
    """Downloads a source package, and returns its entry of sources.json."""
    versions = apt.versions(name)
    for version in versions:
        files = apt.files(name, version)
        try:
            for url, file, digest in files:
                download(url, os.path.join(directory, file), digest)
        except urllib.error.HTTPError as e:
            if not older or version == versions[-1]:
                sys.exit(f"fetch.py: error: cannot download {name} {version}: {e}: {e.url}\n"
                         "  tip: 'contrib/wheel --older' takes the version before it")
            print(f"fetch.py: cannot download {name} {version} ({e}); taking the version before it", file=sys.stderr)
            continue
        return {"name": name, "version": version, "newest": versions[0], "files": {file: digest for _, file, digest in files}}
    return sys.exit(f"fetch.py: apt knows no source package {name}")


def main():
    arguments = sys.argv[1:]
    older = "--older" in arguments
    directory, *names = [a for a in arguments if a != "--older"]
    directory = os.path.abspath(directory)
    apt = Apt(os.path.join(directory, "apt"))
    sources = []
    for name in names:
        source = fetch(apt, name, directory, older)
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        dsc = next(f for f in source["files"] if f.endswith(".dsc"))
        subprocess.run(["dpkg-source", "--no-copy", "-x", dsc, name], cwd=directory, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        print(f"{name} {source['version']}, sha256 of {dsc}: {source['files'][dsc]}")
        sources.append(source)
    with open(os.path.join(directory, "sources.json"), "w", encoding="utf-8") as f:
        json.dump(sources, f, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
