/* Signals by name. */
#ifndef DD_BASE_SIG_H
#define DD_BASE_SIG_H

#include <signal.h>
#include <stdbool.h>

/* "TERM" of 15; "?" for a number that has no name here. */
const char *dd_signal_name(int sig);
/* 15 of "TERM", "SIGTERM" or "15", in any case; -EINVAL. */
int dd_signal_parse(const char *name);

/* What people and schedulers send to a job: TERM, INT, HUP and QUIT, which end it, and USR1 and USR2,
 * which announce something. This is the one list of them. */
void dd_signals_of_jobs(sigset_t *ret);
bool dd_signal_ends_jobs(int sig);
bool dd_signal_announces(int sig);

/* With sigqueue(), a value that goes with a signal that ends a job: nothing has begun, nobody is told. */
enum { DD_SIGNAL_AT_ONCE = 0x200 };

#endif
