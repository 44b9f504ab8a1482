/* Confine ddrund once it listens: no new privileges, and only the system calls that it needs. */
#ifndef DD_DAEMON_CONFINE_H
#define DD_DAEMON_CONFINE_H

#include "base/log.h"

#include <stdbool.h>

/* Install the filter. From then on this process cannot start programs, signal other processes, open
 * files for writing, map code, or open sockets other than netlink and Unix ones. connects: it may
 * call connect(), as MUNGE does. A system call outside the list returns ENOSYS, as on an older
 * kernel, and the first few are reported on stderr by number: an update of the C library that uses
 * a new call must not end jobs. If the kernel lacks seccomp filters, on processors other than
 * x86-64 and AArch64, and under AddressSanitizer, only confine_privileges() takes effect. */
void confine(const struct dd_log *log, bool connects);

/* Only prevent this process and its children from gaining privileges by exec. */
void confine_privileges(void);

#endif
