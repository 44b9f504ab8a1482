# Functions for the scripts in contrib: install packages by name, make a Python environment outside the
# tree, build quietly. Sourced by bash; sets $top and $build.
# shellcheck shell=bash

TORCH_VERSION=2.13.0
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build

say() { printf '%s\n' "$*"; }
complain() { printf '%s\n' "$*" >&2; }

# Print the seconds since the shell's start, with tenths.
now() { printf '%s' "${EPOCHREALTIME/,/.}"; }
elapsed() { LC_ALL=C awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# Print those of the given Debian packages that are not installed.
missing_packages() {
    local name
    for name; do
        dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || printf '%s ' "$name"
    done
}

# run_as_root COMMAND...: directly as root, or through sudo if it needs no password or can ask for one on a terminal.
run_as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
        sudo "$@"
    else
        return 126
    fi
}

apt_get() {
    run_as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

# Print ", 66 MB to fetch", as far as apt knows.
fetch_size() {
    # shellcheck disable=SC2086
    apt-get -qq --print-uris --no-install-recommends install $1 2>/dev/null |
        LC_ALL=C awk '{ s += $3 } END { if (s > 0) printf ", %.0f MB to fetch", s / 1e6 }'
}

# Print the missing packages and their size, and install them. 1: some are still missing; the function
# has printed which, and the command that installs them.
need_packages() {
    local missing log=$build/packages.log
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "There is no apt on this machine. These packages of Debian 12 are needed, by whatever name they"
        say "have here: $*"
        return 1
    fi
    missing=$(missing_packages "$@")
    [[ -z $missing ]] && return 0
    mkdir -p "$build"
    : >"$log"
    # a fresh image may have no package lists
    [[ -n $(fetch_size "$missing") ]] || apt_get update >>"$log" 2>&1 </dev/null
    say "Debian packages to install$(fetch_size "$missing"): $missing"
    # shellcheck disable=SC2086
    if apt_get install -y --no-install-recommends $missing >>"$log" 2>&1 </dev/null ||
        { apt_get update >>"$log" 2>&1 </dev/null &&
            apt_get install -y --no-install-recommends $missing >>"$log" 2>&1 </dev/null; }; then
        return 0
    fi
    tail -n 5 "$log" | grep -v '^$' || true
    say "They could not be installed from here; please do that as root:"
    say "    apt-get install --no-install-recommends $missing"
    return 1
}

# Print a Python that can make the environment: $PYTHON, or the first that is new enough.
find_python() {
    local python
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
            printf '%s' "$python"
            return 0
        fi
    done
    complain "There is no Python from 3.9 on (Debian: python3 python3-venv)."
    return 1
}

# Print those of the given distributions (NAME or NAME==VERSION) that the environment lacks.
missing_distributions() {
    "$venv/bin/python" - "$@" <<'END'
import importlib.metadata
import sys

for wanted in sys.argv[1:]:
    name, _, version = wanted.partition("==")
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None or version and found.split("+")[0] != version:
        print(wanted, end=" ")
END
}

# need_venv DISTRIBUTION...: set $venv to an environment that has them, an existing one if possible.
# DDRUN_VENV names one of your own.
need_venv() {
    local python tag missing log=$build/venv.log
    mkdir -p "$build"
    if [[ -n ${DDRUN_VENV:-} ]]; then
        venv=$DDRUN_VENV
    else
        python=$(find_python) || return 1
        tag=$("$python" -c 'import sys; print("py%d.%d" % sys.version_info[:2])')
        venv=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/ddrun/venv-$tag-torch$TORCH_VERSION
    fi
    if [[ ! -x $venv/bin/python || ! -x $venv/bin/pip ]]; then
        mkdir -p "$(dirname "$venv")"
        if ! "${python:-python3}" -m venv "$venv" >"$log" 2>&1; then
            cat "$log"
            say "The Python environment $venv could not be made (Debian: apt-get install python3-venv)."
            return 1
        fi
    fi
    missing=$(missing_distributions "$@") || return 1
    [[ -z $missing ]] && return 0
    say "Python packages to fetch into $venv: $missing"
    torch_is_wanted "$missing" || return 1
    install_distributions "$log" "$missing" && return 0
    tail -n 5 "$log"
    say "pip could not install them; all that it said is in $log."
    return 1
}

# True if pip would install PyTorch with the libraries of CUDA: pip 23.2 and later reads the requirements
# without downloading PyTorch. 1: no, or unknown.
torch_brings_cuda() {
    local quietly=(--quiet --no-input --disable-pip-version-check)
    [[ -n ${DDRUN_VENV:-} ]] ||
        "$venv/bin/pip" install "${quietly[@]}" 'pip>=23.2' >>"$build/venv.log" 2>&1 </dev/null
    "$venv/bin/pip" install "${quietly[@]}" --dry-run --ignore-installed --no-deps \
        --report "$build/pip-report.json" "$1" >>"$build/venv.log" 2>&1 </dev/null || return 1
    "$venv/bin/python" - "$build/pip-report.json" <<'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    needed = json.load(f)["install"][0]["metadata"].get("requires_dist", [])
sys.exit(not any(name.startswith(("nvidia-", "cuda-")) and "extra ==" not in name for name in needed))
END
}

# Ask before PyTorch with CUDA is installed, which has 3 GB.
torch_is_wanted() {
    local wanted answer
    wanted=$(grep -o 'torch==[^ ]*' <<<"$1") || return 0
    if [[ ${DDRUN_TORCH_CUDA:-} == yes ]] || ! torch_brings_cuda "$wanted"; then
        return 0
    fi
    say "pip would fetch PyTorch with CUDA, about 3 GB; its build for the CPU is about 200 MB. For that one, set"
    say "PIP_EXTRA_INDEX_URL to PyTorch's index of CPU wheels, as its install page shows, and begin again."
    if [[ -t 0 && -t 1 ]]; then
        read -r -p "Fetch the 3 GB now? [y/N] " answer
        [[ $answer == [yY]* ]] && return 0
    fi
    say "Not fetched. DDRUN_TORCH_CUDA=yes fetches it without asking."
    return 1
}

# Install scikit-learn without its dependencies, because only its data are used. DeepSpeed's build runs here, needs PyTorch, and
# must compile nothing. No distribution may install another PyTorch.
install_distributions() {
    local log=$1 name full=() own=()
    for name in $2; do
        if [[ $name == scikit-learn ]]; then
            "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check --no-deps "$name" \
                >>"$log" 2>&1 </dev/null || return 1
        elif [[ $name == deepspeed* ]]; then
            own+=("$name")
        else
            full+=("$name")
        fi
    done
    if [[ ${#full[@]} -gt 0 ]]; then
        "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check "${full[@]}" "torch==$TORCH_VERSION" \
            >>"$log" 2>&1 </dev/null || return 1
    fi
    [[ ${#own[@]} -eq 0 ]] && return 0
    "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check setuptools wheel >>"$log" 2>&1 </dev/null &&
        DS_BUILD_OPS=0 "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check --no-build-isolation \
            "${own[@]}" "torch==$TORCH_VERSION" >>"$log" 2>&1 </dev/null
}

# own_venv NAME: print the directory of the environment of that name.
own_venv() { printf '%s' "${DDRUN_VENVS:-${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/ddrun}/venv-$1"; }

# need_own_venv NAME DISTRIBUTION...: make an environment for these alone, venv-NAME in the cache or in DDRUN_VENVS.
need_own_venv() {
    local missing log=$build/venv-$1.log venv
    venv=$(own_venv "$1")
    shift
    [[ -x $venv/bin/pip ]] || "$(find_python)" -m venv "$venv" >"$log" 2>&1 || return 1
    missing=$(missing_distributions "$@") || return 1
    [[ -z $missing ]] && return 0
    say "Python packages to fetch into $venv: $missing"
    # shellcheck disable=SC2086
    "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check $missing >>"$log" 2>&1 </dev/null
}

# configure_in DIRECTORY CONFIGURE_ARGUMENT...: configure, unless the arguments are those of the last time.
configure_in() {
    local folder=$1
    shift
    if [[ -f $top/config.status ]]; then
        say "This tree was configured in place, so nothing can be built beside it: 'make distclean' first."
        return 1
    fi
    mkdir -p "$folder" || return 1
    [[ -x $top/configure && -f $top/build-aux/install-sh && $top/configure -nt $top/configure.ac ]] ||
        "$top/autogen.sh" || return 1
    if [[ ! -f $folder/Makefile || "$(cat "$folder/configured" 2>/dev/null)" != "$*" ]]; then
        (cd "$folder" && "$top/configure" "$@") || return 1
        printf '%s' "$*" >"$folder/configured"
    fi
}

# configure_and_make DIRECTORY CONFIGURE_ARGUMENT...
configure_and_make() {
    configure_in "$@" && make -C "$1" -j"$(nproc)"
}

# make_root DIRECTORY: a root of the Debian release that the directory is named after. It is used again.
make_root() {
    [[ -f $1/made ]] && return
    rm -rf "$1"
    mkdir -p "$1"
    debootstrap --variant=minbase --include=python3-venv "${1##*/}" "$1" >"$1.log" 2>&1 || return 1
    touch "$1/made"
}
