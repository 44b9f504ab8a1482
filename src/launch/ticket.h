/* The one argument of a started node, "--launched=TICKET": where it fetches its package
 * (launch/bootstrap_server.h), and with which key. Every user of the machine can read it in /proc:
 * no part of a key stands in it. Pure.
 *
 *   TICKET = INDEX "/" PORT "/" ID "/" [KEY "/"] HOST {"," HOST} [PATH]
 */
#ifndef DD_LAUNCH_TICKET_H
#define DD_LAUNCH_TICKET_H

#include "base/err.h"
#include "base/strv.h"

#include <stdint.h>

enum { LAUNCH_HOSTS_MAX = 16 }; /* names and addresses in a ticket */

/* How the node comes to the key. */
enum launch_key {
    LAUNCH_KEY_OFFERED, /* by MUNGE or the home directory, as the starting node announces */
    LAUNCH_KEY_STDIN,   /* a line on standard input */
    LAUNCH_KEY_FILE,    /* PATH: the user's key file */
    LAUNCH_KEY_MUNGE,   /* PATH: munged's socket */
    LAUNCH_KEY_COOKIE,  /* PBS_JOBCOOKIE, on demand */
};

struct launch_ticket {
    int index; /* of the node */
    uint16_t port;
    char id[32]; /* of the door */
    enum launch_key key;
    char *path;           /* absolute, where the key has one; else NULL */
    struct dd_strv hosts; /* names and addresses of the starting node, to be tried all at once */
};

int launch_ticket_parse(struct launch_ticket *ret, const char *text, struct dd_err *err);
void launch_ticket_done(struct launch_ticket *t);
char *
launch_ticket_argument(const struct launch_ticket *t); /* "--launched=…", free(); NULL: no memory */

#endif
