/* Signals by name, and the signals that jobs receive. */
#ifndef DD_BASE_SIG_H
#define DD_BASE_SIG_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Return "TERM" for 15, "RTMIN+2" for SIGRTMIN + 2; "?" for a number without a name. */
const char *dd_signal_name(int sig);
/* Return 15 for "TERM", "SIGTERM" or "15", ignoring case; else -EINVAL. */
int dd_signal_parse(const char *name);

/* Set *ret to the signals that users and schedulers send to jobs: TERM, INT, HUP and QUIT end a
 * job; USR1 and USR2 announce an event, such as the end of the time limit. */
void dd_signals_of_jobs(sigset_t *ret);
bool dd_signal_ends_jobs(int sig);
bool dd_signal_announces(int sig);

/* A job-wide signal may be delivered more than once: to several processes, on several nodes. Return
 * true if a delivery at `now` (ns) is a copy of the one at *taken: it follows within
 * DD_SIGNAL_SAME_MS, or within DD_SIGNAL_COPIES_MS through a channel that has not delivered it yet.
 * For SIGUSR1 and SIGUSR2, DD_SIGNAL_NOTICES_MS replaces DD_SIGNAL_COPIES_MS: a machine may stall
 * for seconds, and a job must not receive a notice twice. There is one *taken per signal and one
 * *heard per channel; 0: never. *taken and *heard are updated. */
enum { DD_SIGNAL_SAME_MS = 250, DD_SIGNAL_COPIES_MS = 5000, DD_SIGNAL_NOTICES_MS = 30000 };
bool dd_signal_is_copy(int sig, uint64_t *taken, uint64_t *heard, uint64_t now);

/* Values sent with sigqueue() along with a signal that ends a job. AT_ONCE: no round has begun, so
 * end at once without informing other nodes. LEAVE: end this node alone; the job may go on. */
enum { DD_SIGNAL_AT_ONCE = 0x200, DD_SIGNAL_LEAVE = 0x1000 };

#endif
