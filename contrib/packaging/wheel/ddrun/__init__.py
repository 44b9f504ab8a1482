"""The programs of ddrun, which pip has installed in the bin of the environment."""

import os
import sysconfig


def find_program(name: str = "ddrun") -> str:
    """The path of ddrun, ddrund or ddctl as it was installed with this package."""
    package = os.path.dirname(os.path.abspath(__file__))
    user = "posix_user"
    places = [sysconfig.get_path("scripts"),
              sysconfig.get_path("scripts", user) if user in sysconfig.get_scheme_names() else None,
              os.path.join(os.path.dirname(package), "bin")]  # pip install --target
    for place in places:
        path = os.path.join(place, name) if place else ""
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"{name} is in none of: {', '.join(p for p in places if p)}")
