/* State and functions that the files of ddrun-stage for --collect share. One process receives the
 * files, on the first node of the round; one on each node sends them. */
#ifndef DD_STAGE_COLLECT_INNER_H
#define DD_STAGE_COLLECT_INNER_H

#include "net/link.h"
#include "stage/collect_codec.h"
#include "stage/stage_msg.h"

struct event;
struct event_base;

enum { COLLECT_SILENCE_MS = 120000, COLLECT_ALIVE_S = 5, COLLECT_HELLO_MS = 20000 };

struct collect {
    struct event_base *base;
    int control; /* socket of the agent */
    struct event *control_event, *alive_event;
    struct stage_msg setup; /* message COLLECT of the agent; has no texts until it is received */
    struct net_key_input key_in;
    struct net_key key;
    void (*drop)(void *arg); /* removes incomplete files before the exit; NULL: nothing to remove */
    void *drop_arg;
};

/* collect_tell.c */
void collect_tell(const struct collect *c, enum stage_msg_type type, const char *text);
/* Remove incomplete files, and exit. */
_Noreturn void collect_exit(const struct collect *c, int code);
/* Report `why` to the agent, remove incomplete files, and exit. */
_Noreturn void collect_fail(const struct collect *c, const char *why);
/* Send a frame. False: the link does not accept it. */
bool collect_send_frame(struct link *l, const struct collect_frame *f);

/* collect_send.c, collect_receive.c: 0 or -errno */
int collect_send(struct collect *c, struct dd_err *err);
int collect_receive(struct collect *c, struct dd_err *err);

/* collect_serve.c: the whole process; returns its exit status */
int collect_serve(void);

#endif
