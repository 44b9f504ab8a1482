/* A launcher that another node's launcher has started: orders of its parent, and the loss of the
 * parent. */
#ifndef DD_LAUNCH_RELAY_H
#define DD_LAUNCH_RELAY_H

#include "base/err.h"

#include <stdbool.h>

struct parent_link;
struct relay;

struct relay_cb {
    void (*on_cancel)(void *arg, int index);
    void (*on_signal)(void *arg, int index, int sig, int how); /* for the agent of that node */
    void (*on_room)(void *arg); /* the parent has room for more output */
    void (*on_lost)(void *arg); /* the parent is lost */
    void *arg;
};

/* stdin_fd: EOF means that the parent is lost; -1: none. All borrowed. */
int relay_new(struct relay **ret, struct parent_link *parent, int stdin_fd,
              const struct relay_cb *cb, struct dd_err *err);
void relay_free(struct relay *r);

#endif
