/* Signals by name. */
#ifndef DD_BASE_SIG_H
#define DD_BASE_SIG_H

/* "TERM" of 15; "?" for a number that has no name here. */
const char *dd_signal_name(int sig);
/* 15 of "TERM", "SIGTERM" or "15", in any case; -EINVAL. */
int dd_signal_parse(const char *name);

#endif
