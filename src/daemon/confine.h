/* Confines ddrund once it listens: no new privileges, and no system call that a store and a round
 * machine do not need. */
#ifndef DD_DAEMON_CONFINE_H
#define DD_DAEMON_CONFINE_H

#include "base/log.h"

/* From here on this process starts no program, signals no other process, writes to no file, maps no
 * code and opens no socket but netlink's and Unix ones. A system call that is not on the list
 * returns ENOSYS, as it would on an older kernel, and the first ones are reported on stderr by
 * number: a C library that starts to use another call must not end a job. Without effect where the
 * kernel has no filters, on other processors than x86-64 and AArch64, and under AddressSanitizer.
 */
void confine(const struct dd_log *log);

/* Only that this process and its children gain no privileges by exec. */
void confine_privileges(void);

#endif
