"""without_pidfd.py ERRNO COMMAND...: run COMMAND with pidfd_open(2) failing, as before Linux 5.3 or under a container's filter."""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
PIDFD_OPEN = 434  # on all machines but alpha
RET_ERRNO, RET_ALLOW = 0x00050000, 0x7fff0000
code = b"".join(struct.pack("HBBI", *row) for row in (
    (0x20, 0, 0, 0),           # load the number of the call
    (0x15, 0, 1, PIDFD_OPEN),
    (0x06, 0, 0, RET_ERRNO | int(sys.argv[1])),
    (0x06, 0, 0, RET_ALLOW)))
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HL", len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program))):
    if libc.prctl(*call) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
try:
    os.pidfd_open(os.getpid())
    sys.exit("pidfd_open works still")
except OSError:
    os.execvp(sys.argv[2], sys.argv[2:])
