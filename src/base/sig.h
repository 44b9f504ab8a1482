/* Signals by name. */
#ifndef DD_BASE_SIG_H
#define DD_BASE_SIG_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* "TERM" of 15; "?" for a number that has no name here. */
const char *dd_signal_name(int sig);
/* 15 of "TERM", "SIGTERM" or "15", in any case; -EINVAL. */
int dd_signal_parse(const char *name);

/* What people and schedulers send to a job: TERM, INT, HUP and QUIT, which end it, and USR1 and
 * USR2, which announce something. This is the one list of them. */
void dd_signals_of_jobs(sigset_t *ret);
bool dd_signal_ends_jobs(int sig);
bool dd_signal_announces(int sig);

/* Whoever signals a whole job reaches it several times: its processes, its nodes. Whether one that
 * comes now (ns) is a copy of the one of *taken: it comes at nearly the same time, or soon and by a
 * way that has not yet brought it. Of *taken, one for a signal, and *heard, one for each way, 0 is
 * "never"; both are kept up. */
enum { DD_SIGNAL_SAME_MS = 250, DD_SIGNAL_COPIES_MS = 2000 };
bool dd_signal_is_copy(uint64_t *taken, uint64_t *heard, uint64_t now);

/* With sigqueue(), a value that goes with a signal that ends a job: nothing has begun, nobody is
 * told. */
enum { DD_SIGNAL_AT_ONCE = 0x200 };

#endif
