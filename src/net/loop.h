/* An event loop that reports its failures in ddrun's format. */
#ifndef DD_NET_LOOP_H
#define DD_NET_LOOP_H

#include <event2/event.h>

/* event_base_new(); NULL: out of memory. If libevent gives up (no descriptor is left for its own
 * pipe), it prints one line to stderr and the process exits with 2 instead of libevent's 1.
 * libevent's warnings are dropped: the failing call reports the same error. */
struct event_base *net_loop_new(void);

#endif
