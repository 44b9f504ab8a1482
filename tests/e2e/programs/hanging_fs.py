"""Mount a file system whose server does not answer requests to open its only file, "file". hanging_fs.py DIRECTORY

Prints "mounted" and serves until it is killed, which ends the waits of all processes.
Src: linux/fuse.h, protocol 7.31.
"""

import ctypes
import errno
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 26, 36, 42
SILENT = {FORGET, OPEN, INTERRUPT, BATCH_FORGET}  # no answer is expected, or none comes
FOREVER = 3600


def attributes(inode):
    mode = 0o40755 if inode == 1 else 0o100644
    return struct.pack("<6Q10I", inode, 10, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer_to(operation, inode):
    if operation == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 10, 10, 1 << 16, 1, 16, 0, 0, *[0] * 7)
    if operation == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, FOREVER, FOREVER, 0, 0) + attributes(2)
    if operation == GETATTR:
        return struct.pack("<QII", FOREVER, 0, 0) + attributes(inode)
    return None


def main():
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hanging", os.fsencode(sys.argv[1]), b"fuse", 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(fuse, 1 << 21)
        _, operation, unique, inode = struct.unpack("<IIQQ", request[:24])
        if operation in SILENT:
            continue
        data = answer_to(operation, inode)
        error = 0 if data is not None else -errno.ENOSYS
        os.write(fuse, struct.pack("<IiQ", 16 + len(data or b""), error, unique) + (data or b""))


main()
