"""Finds the programs and the library of ddrun, and the nodes of the job."""

import os
import shutil
import subprocess
import sysconfig
from typing import List, Optional

from ._errors import LaunchError


def _directories() -> List[str]:
    """Return the directories that this package may have been installed with, the most likely first."""
    package = os.path.dirname(os.path.abspath(__file__))
    places = [sysconfig.get_path("scripts")]
    if "posix_user" in sysconfig.get_scheme_names():
        places.append(sysconfig.get_path("scripts", "posix_user"))
    places.append(os.path.join(os.path.dirname(package), "bin"))  # pip install --target
    if os.path.basename(os.path.dirname(package)) in ("site-packages", "dist-packages"):  # pip install --prefix
        places.insert(0, os.path.normpath(os.path.join(package, "..", "..", "..", "..", "bin")))
    if package.endswith("/share/ddrun/python/ddrun"):  # make install
        places.insert(0, os.path.join(package[:-len("/share/ddrun/python/ddrun")], "bin"))
    return places


def find_program(name: str = "ddrun") -> str:
    """Return the path of ddrun, ddrund or ddctl: the one installed with this package, else the one in PATH.

    Raises FileNotFoundError if there is none.
    """
    places = _directories()
    for place in places:
        path = os.path.join(place, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is neither in PATH nor in any of: {', '.join(places)}")
    return os.path.abspath(found)


def find_library() -> Optional[str]:
    """Return the path of libddrun beside the program ddrun, or None: then the dynamic linker searches for it."""
    directory = os.path.dirname(os.path.realpath(find_program()))
    prefix = os.path.dirname(directory)
    places = [directory, os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]  # a build directory; an installation
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        places.append(os.path.join(prefix, "lib", multiarch))
    for place in places:
        path = os.path.join(place, "libddrun.so.0")
        if os.path.exists(path):
            return path
    return None


def hosts() -> List[str]:
    """Return the names of this job's nodes in rank order, each once, as `ddctl hosts` prints them.

    Without a job, the only name is that of this machine. Raises LaunchError if ddctl cannot read the allocation.
    """
    done = subprocess.run([find_program("ddctl"), "hosts"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode != 0:
        raise LaunchError(done.stderr.strip() or "ddctl hosts failed", done.returncode)
    return done.stdout.split()
