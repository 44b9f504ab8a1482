/* Reads from /proc what a worker and its descendants have used so far: signs of activity of a
 * program that neither writes output nor sends heartbeats. */
#ifndef DD_WORKER_ACTIVITY_H
#define DD_WORKER_ACTIVITY_H

#include "worker/hang.h"
#include "worker/socket_bytes.h"

#include <sys/types.h>

/* Add up what pid and its descendants have used. What cannot be read counts as 0. If sockets is
 * NULL, net_bytes stays 0. Return 0 or -ENOMEM. */
int activity_read(pid_t pid, const struct socket_bytes *sockets, struct hang_counters *ret);
/* Return how long, in all, the main thread of a process was ready to run but had no processor, as
 * happens on an overloaded machine. Other threads do not count: threads that wake up only
 * occasionally wait longest, although that does not delay the program. 0: unknown. */
uint64_t activity_delay_ns(pid_t pid);
/* Return how long the main thread of this process has run or has waited for a processor. Time while
 * it slept or was stopped is not included. 0: unknown. */
uint64_t activity_own_ns(void);

#endif
