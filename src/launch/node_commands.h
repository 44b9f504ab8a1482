/* Runs one command on each node of an allocation: on this node directly, on others with a starter.
 */
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
    const char *program; /* path of the starter */
    const char *words;   /* command that replaces the starter; NULL: none */
    size_t output_max;   /* maximum output of each command, in bytes */
    unsigned limit_ms;   /* time limit, after which the command is killed */
    /* Append the command for a node; index -1: the command for all nodes, which one starter
     * starts. */
    int (*command)(void *arg, struct dd_strv *out, int index);
    /* Called once for each command, with the name of the node or of the starter. Exit status and
     * output as in worker/command.h. */
    void (*on_exit)(void *arg, const char *where, int code, const char *out);
    void (*on_done)(void *arg); /* all commands have exited */
    void *arg;
};

int node_commands_start(struct node_commands **ret, const struct node_commands_cfg *cfg,
                        struct dd_err *err);
void node_commands_free(struct node_commands *n); /* kills running commands; NULL is allowed */

#endif
