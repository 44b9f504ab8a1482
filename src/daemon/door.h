/* The one port: takes connections and tells by the first byte who is there. 0xdd is an agent's link,
 * 0x00-0x1f a worker that speaks c10d; anything else is not served. */
#ifndef DD_DAEMON_DOOR_H
#define DD_DAEMON_DOOR_H

#include "base/err.h"
#include "base/log.h"

struct event_base;
struct door;

struct door_cb {
    void (*on_agent)(void *arg, int fd);  /* gives the fd, nothing read from it */
    void (*on_worker)(void *arg, int fd); /* the same */
    void *arg;
};

/* Takes listen_fd, non-blocking. Gives *ret. */
int door_new(struct door **ret, struct event_base *base, int listen_fd, const struct dd_log *log,
             const struct door_cb *cb, struct dd_err *err);
void door_free(struct door *d);

#endif
