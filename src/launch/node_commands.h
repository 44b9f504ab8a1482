/* One command on each node of an allocation, by its starter; on this node without. */
#ifndef DD_LAUNCH_NODE_COMMANDS_H
#define DD_LAUNCH_NODE_COMMANDS_H

#include "alloc/alloc.h"
#include "launch/starter.h"

struct event_base;
struct node_commands;

/* All borrowed. */
struct node_commands_cfg {
    struct event_base *base;
    const struct alloc *alloc;
    const struct starter *starter;
    const char *program; /* the starter's path */
    const char *words;   /* of the user, in its place; NULL */
    size_t output_max;   /* of each command */
    unsigned limit_ms;   /* then it is killed */
    /* Appends the command of a node; index -1: of all nodes, whose starter starts them at once. */
    int (*command)(void *arg, struct dd_strv *out, int index);
    /* Once for each command: the node's name, or the starter's; exit status and output as in
     * worker/command.h. */
    void (*on_exit)(void *arg, const char *where, int code, const char *out);
    void (*on_done)(void *arg); /* all have exited */
    void *arg;
};

int node_commands_start(struct node_commands **ret, const struct node_commands_cfg *cfg,
                        struct dd_err *err);
void node_commands_free(struct node_commands *n); /* kills what still runs; NULL is fine */

#endif
