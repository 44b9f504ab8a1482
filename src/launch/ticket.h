/* The ticket, the only argument of a started node ("--launched=TICKET"): where the node fetches its
 * payload (launch/bootstrap_server.h), and with which key. It contains no part of a key, since
 * every user of the machine can read it in /proc. Pure.
 *
 *   TICKET = INDEX "/" PORT "/" ID "/" [KEY "/"] HOST {"," HOST} [PATH]
 */
#ifndef DD_LAUNCH_TICKET_H
#define DD_LAUNCH_TICKET_H

#include "base/err.h"
#include "base/strv.h"

#include <stdint.h>

enum { LAUNCH_HOSTS_MAX = 16 }; /* maximum number of names and addresses in a ticket */

/* Source of the key on the started node. */
enum launch_key {
    LAUNCH_KEY_OFFERED, /* MUNGE or the home directory, as the launching node announces */
    LAUNCH_KEY_STDIN,   /* a line on stdin */
    LAUNCH_KEY_FILE,    /* PATH: key file of the user */
    LAUNCH_KEY_MUNGE,   /* PATH: socket of munged */
    LAUNCH_KEY_COOKIE,  /* PBS_JOBCOOKIE, if requested */
};

struct launch_ticket {
    int index; /* index of the node */
    uint16_t port;
    char id[32]; /* id of the bootstrap server */
    enum launch_key key;
    char *path;           /* absolute path of the key; NULL: it has none */
    struct dd_strv hosts; /* names and addresses of the launching node, all tried at once */
};

int launch_ticket_parse(struct launch_ticket *ret, const char *text, struct dd_err *err);
void launch_ticket_done(struct launch_ticket *t);
char *launch_ticket_argument(
    const struct launch_ticket *t); /* Return "--launched=…" (free()); NULL: out of memory. */

#endif
