/* An event loop whose failures are reported as ddrun's. */
#ifndef DD_NET_LOOP_H
#define DD_NET_LOOP_H

#include <event2/event.h>

/* event_base_new(); NULL: out of memory. Where libevent cannot go on (no descriptor is left for its
 * own pipe), it says so on stderr in one line and the process exits with 2, not with libevent's 1.
 * Its warnings are dropped: what they announce arrives as an error of the call. */
struct event_base *net_loop_new(void);

#endif
