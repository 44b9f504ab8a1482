#!/bin/sh
# Becomes process 1 of a new machine of the temporary cluster (see machine.py); started by unshare in new mount, uts,
# ipc, net and pid namespaces.   machine.sh CLUSTER_DIR NAME HOSTNAME GPUS [SHARED_DIR...]
set -eu
dir=$1 name=$2 hostname=$3 gpus=$4
shift 4

read -r pid _ < /proc/self/stat # still the outer /proc: the pid of this process outside
echo "$pid"
read -r _ # end of file: the parent died before it recorded this process

# An empty tmpfs at $1, which shows only the shared directories below $1.
private() {
    at=$1 mode=$2
    shift 2
    mount -n -t tmpfs -o "mode=$mode" tmpfs "$dir/stage"
    for shared; do
        case $shared in
        "$at"/*)
            mkdir -p "$dir/stage${shared#"$at"}"
            mount -n --rbind "$shared" "$dir/stage${shared#"$at"}"
            ;;
        esac
    done
    mount -n --move "$dir/stage" "$at"
}

# An overlay of machines/NAME/over on the host's $1, read-only; shared directories below $1 are bound as they are.
over() {
    at=$1
    shift
    mount -n -t overlay -o "lowerdir=$dir/machines/$name/over$at:$at" overlay "$dir/stage"
    for shared; do
        case $shared in
        "$at"/*) mount -n --rbind "$shared" "$dir/stage${shared#"$at"}" ;;
        esac
    done
    mount -n --move "$dir/stage" "$at"
}

echo "$hostname" > /proc/sys/kernel/hostname
mount -n -t proc proc /proc
if mount -n -t sysfs sysfs "$dir/stage"; then # /sys/class/net shows this machine's interfaces only
    [ ! -d /sys/fs/cgroup ] || mount -n --rbind /sys/fs/cgroup "$dir/stage/fs/cgroup"
    mount -n --move "$dir/stage" /sys
fi
while read -r at; do
    over "$at" "$@"
done < "$dir/machines/$name/over.list"
while read -r source at; do
    mount -n --bind "$source" "$at"
done < "$dir/machines/$name/binds.list"
for file in hosts nsswitch.conf passwd group; do
    [ ! -e "/etc/$file" ] || mount -n --bind "$dir/machines/$name/$file" "/etc/$file"
done
private /tmp 1777 "$@"
private /dev/shm 1777 "$@"
private /run 755 "$@"
private /root 755 "$@" # other users must reach the shared directories there
mkdir -m 711 /run/munge
while [ "$gpus" -gt 0 ]; do
    gpus=$((gpus - 1))
    mknod -m 666 "/run/gpu$gpus" c 1 3 # another /dev/null: Slurm requires a device file per GPU
done

echo ready
# SIGCHLD ignored: the kernel reaps the orphans of process 1.
exec env --ignore-signal=CHLD sleep infinity < /dev/null > /dev/null 2>&1
