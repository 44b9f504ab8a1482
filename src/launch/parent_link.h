/* The started side of a start: fetches the node's package from the one that has started it
 * (launch/bootstrap_server.h) and stays in touch with it over the same link. */
#ifndef DD_LAUNCH_UP_H
#define DD_LAUNCH_UP_H

#include "launch/bootstrap_payload.h"
#include "launch/ticket.h"
#include "launch/launch_msg.h"
#include "net/key.h"
#include "net/link.h"

struct event_base;

struct launch_up;

/* All borrowed for the call. */
struct launch_fetch_cfg {
    const struct launch_ticket *ticket;
    const struct net_key_input *key_in;
    const struct dd_log *log;
    unsigned limit_ms;
    int stdin_fd; /* once it has ended, there is nobody to fetch it from; -1 */
};
/* Fetches the package, and what this node is to do for others. Gives *ret, which has an event base
 * of its own. */
int launch_fetch(struct launch_up **ret, struct package *ret_package, struct launch_task *ret_task,
                 const struct launch_fetch_cfg *cfg, struct dd_err *err);
struct event_base *launch_up_base(const struct launch_up *u);

struct launch_up_cb {
    void (*on_word)(void *arg, const struct launch_word *w);
    void (*on_room)(void *arg);                  /* for more output */
    void (*on_lost)(void *arg, const char *why); /* once: nobody is there any more */
    void *arg;
};
void launch_up_begin(struct launch_up *u, const struct launch_up_cb *cb);
void launch_up_say(struct launch_up *u, enum launch_word_type type, int node, uint32_t value);
/* How much output of a stream may be put now. What is put beyond is sent all the same. */
size_t launch_up_room(const struct launch_up *u, int which);
void launch_up_put(struct launch_up *u, int which, const void *p, size_t n);
void launch_up_end(struct launch_up *u); /* of all streams: no more comes. Twice is fine. */
bool launch_up_empty(
    const struct launch_up *u); /* all that was put has gone on up there, or there is nobody */
/* Says goodbye, waits for it to be heard, and frees. NULL is fine. */
void launch_up_free(struct launch_up *u);

#endif
