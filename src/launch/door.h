/* Where nodes that a starter has started fetch their package (launch/package.h): the starting side
 * gives it to whoever proves that it has the key, the started side asks for it. */
#ifndef DD_LAUNCH_DOOR_H
#define DD_LAUNCH_DOOR_H

#include "launch/package.h"
#include "net/key.h"
#include "net/link.h"

struct event_base;

/* ---- starting side ---- */

struct launch_door;

struct launch_door_cfg {
    const char *id;               /* of this start, in place of a job id */
    const struct dd_buf *package; /* borrowed */
    const struct net_key *key;
    const struct net_key_input *key_in;
    int nnodes;
    void (*on_fetched)(void *arg, int index); /* each node once */
    void *arg;
};

int launch_door_new(struct launch_door **ret, struct event_base *base, const struct launch_door_cfg *cfg,
                    struct dd_err *err);
/* The argument with which a node finds the door: "--launched=…". free() */
char *launch_door_argument(const struct launch_door *d, int index, bool key_on_stdin, char *const *addresses);
void launch_door_leave(const struct launch_door *d); /* in a child, which does not run the loop */
void launch_door_free(struct launch_door *d);

/* ---- started side ---- */

/* What "--launched=…" says. */
struct launch_ticket {
    int index;
    bool key_on_stdin;
    uint16_t port;
    char id[32]; /* of the door */
    struct dd_strv hosts; /* names and addresses, to be tried all at once */
};

int launch_ticket_parse(struct launch_ticket *ret, const char *text, struct dd_err *err);
void launch_ticket_done(struct launch_ticket *t);

/* Fetches the package within limit_ms. */
int launch_fetch(struct package *ret, const struct launch_ticket *t, const struct net_key_input *key_in,
                 const struct dd_log *log, unsigned limit_ms, struct dd_err *err);

#endif
