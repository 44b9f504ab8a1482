"""make install: the programs work where they are installed and elsewhere; make uninstall removes all files."""

import os
import re
import shutil
import subprocess

import pytest

from support import BUILD, LIMIT, clean_env

MODULES = "/usr/share/modules/init/bash"
LMOD = "/usr/share/lmod/lmod/init/bash"
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGE = next((p for p in ("bash", "ls", "sh") if shutil.which("man") and
             subprocess.run(["man", "-w", p], capture_output=True, check=False).returncode == 0), None)


def sh(*words, **env):
    return subprocess.run(words, env=clean_env(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                          check=False)


def files(place):
    return [os.path.join(folder, f) for folder, _, names in os.walk(place) for f in names]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a DESTDIR with all files in it."""
    place = str(tmp_path_factory.mktemp("install"))
    made = sh("make", "-C", BUILD, "-s", "install", f"DESTDIR={place}")
    assert made.returncode == 0, made.stderr
    return place


@pytest.fixture(scope="module")
def moved(installed, tmp_path_factory):
    """Return a copy of the installed prefix in another place."""
    ddrun = [f for f in files(installed) if f.endswith("/bin/ddrun")][0]
    place = str(tmp_path_factory.mktemp("moved") / "of a site")
    shutil.copytree(os.path.dirname(os.path.dirname(ddrun)), place, symlinks=True)
    return place


@pytest.mark.parametrize("how", ["path", "symlink"])
def test_it_finds_its_other_programs_where_all_has_been_moved(moved, how, tmp_path):
    ddrun = os.path.join(moved, "bin", "ddrun")
    if how == "symlink":
        os.symlink(ddrun, tmp_path / "ddrun")
        ddrun = str(tmp_path / "ddrun")
    helper = os.path.exists(os.path.join(moved, "libexec", "ddrun", "ddrun-pmix"))
    job = sh(ddrun, "--simulate-nodes=2", "--nproc-per-node=1", *(["--mpi=pmix"] if helper else []), "sh", "-c", "readlink /proc/[0-9]*/exe; true")
    assert (job.returncode, job.stderr) == (0, "")
    ours = [p for p in job.stdout.splitlines() if p.startswith(moved)]
    names = {os.path.basename(p) for p in ours}
    assert "ddrun" in names and ("ddrun-pmix" in names or not helper), (names, job.stderr)


@pytest.mark.parametrize("shell, file", [("bash", "share/bash-completion/completions/ddrun"), ("zsh", "share/zsh/site-functions/_ddrun"),
                                         ("fish", "share/fish/vendor_completions.d/ddrun.fish")])
def test_completions_lie_where_the_shell_looks(moved, tmp_path, shell, file):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = os.path.join(moved, file)
    asked = {"bash": f". '{path}'; COMP_WORDS=(ddrun --nproc-per-n); COMP_CWORD=1; $(complete -p ddrun | sed 's/.*-F \\([^ ]*\\).*/\\1/') "
                     "ddrun --nproc-per-n ddrun; echo ${COMPREPLY[@]}",
             "zsh": f"fpath=('{os.path.dirname(path)}' $fpath); autoload -Uz compinit; compinit -u -D; echo ${{_comps[ddrun]}}; "
                    "autoload +X _ddrun && which _ddrun",
             "fish": f"source '{path}'; complete -C 'ddrun --nproc-per-n'"}[shell]
    said = sh(shell, "-c", asked, XDG_CONFIG_HOME=str(tmp_path))  # fish creates it
    assert "nproc-per-node" in said.stdout, (said.stdout, said.stderr)


@pytest.mark.parametrize("init, name", [(MODULES, "ddrun.tcl"), (LMOD, "ddrun.tcl"), (LMOD, "ddrun.lua")])
def test_the_module_brings_the_command_the_python_package_and_the_manual_and_leaves_the_systems(moved, tmp_path, init, name):
    if not os.path.exists(init):
        pytest.skip("no Environment Modules on this machine" if init == MODULES else "no Lmod on this machine")
    os.makedirs(tmp_path / "ddrun")
    with open(os.path.join(TOP, "contrib", "jobs", name), encoding="utf-8") as f:
        text = f.read()
    place = str(tmp_path / "prefix")  # words of Tcl have no spaces
    os.symlink(moved, place)
    assert text.count("/opt/ddrun") == 1
    (tmp_path / "ddrun" / ("1.0.lua" if name.endswith(".lua") else "1.0")).write_text(text.replace("/opt/ddrun", place))
    script = f". {init}; unset MANPATH; export MODULEPATH={tmp_path}; module load ddrun && which ddrun && man -w ddrun && man -w {PAGE or 'ddrun'} && " \
             "python3 -c 'import ddrun; print(ddrun.__file__)'; module unload ddrun; echo end=$(which ddrun)$MANPATH$PYTHONPATH"
    said = sh("bash", "-c", script, PATH="/usr/local/bin:/usr/bin:/bin")
    lines = said.stdout.split()
    assert lines[0] == f"{place}/bin/ddrun", said.stderr
    assert len(lines) == 5 and lines[1] == f"{place}/share/man/man1/ddrun.1", (lines, said.stderr)
    assert lines[3] == f"{place}/share/ddrun/python/ddrun/__init__.py", (lines, said.stderr)
    assert lines[4] == "end=" and (PAGE is None or not lines[2].startswith(place)), lines


def test_what_the_manual_and_the_pages_name_is_there(installed):
    all_files = set(files(installed))
    top = [os.path.dirname(f) for f in all_files if f.endswith("/doc/ddrun/README.md")][0]
    named = set()
    for path in all_files:
        if path.endswith((".md", ".1", ".8", ".3")):
            with open(path, encoding="utf-8") as f:
                named |= set(re.findall(r"\b(?:docs/[\w/-]+\.md\b|(?:contrib/jobs|examples)/[\w-]+\.\w+)", f.read().replace("\\-", "-")))
    there = {os.path.relpath(f, top) for f in all_files}
    assert {"docs/clusters.md", "docs/mpi.md", "examples/hello_ddrun.c"} <= named and named <= there, named - there
    scripts = os.listdir(os.path.join(TOP, "contrib", "jobs"))
    assert {f"contrib/jobs/{name}" for name in scripts} <= there


def test_uninstall_leaves_nothing(tmp_path):
    for word in ("install", "uninstall"):
        made = sh("make", "-C", BUILD, "-s", word, f"DESTDIR={tmp_path}")
        assert made.returncode == 0, made.stderr
        assert bool(files(tmp_path)) == (word == "install"), files(tmp_path)
