#!/bin/sh
# Makes ./configure from configure.ac.
set -e
cd "$(dirname "$0")"
mkdir -p m4 build-aux
exec autoreconf --install --force --warnings=all,no-portability,no-obsolete
