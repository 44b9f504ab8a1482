#!/bin/sh
# fork_node.sh HOST COMMAND...: in place of ssh: runs COMMAND on this machine under the host name HOST.
host=$1
shift
# shellcheck disable=SC2016 # that shell expands them
exec unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
