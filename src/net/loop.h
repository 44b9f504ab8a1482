/* An event loop that reports its failures in ddrun's format. */
#ifndef DD_NET_LOOP_H
#define DD_NET_LOOP_H

#include <event2/event.h>

/* As event_base_new(); NULL: out of memory. If libevent gives up (for example because no descriptor
 * is left for its own pipe), it prints one line to stderr and the process exits with 2 instead of
 * libevent's 1. libevent's warnings are dropped: the failing call reports the same error. */
struct event_base *net_loop_new(void);

/* As net_loop_new(), for a process that serves thousands of connections: libevent passes all
 * changes of events to the kernel just before it waits, which saves a system call for each event
 * that is added and deleted again. Only for sockets that no other process or descriptor holds after
 * they are closed (EPOLL_USE_CHANGELIST in event2/event.h). */
struct event_base *net_loop_new_of_many(void);

#endif
