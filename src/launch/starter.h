/* Starters: commands that run a program on other nodes of an allocation, one row each. Pure. */
#ifndef DD_LAUNCH_STARTER_H
#define DD_LAUNCH_STARTER_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

struct start {
    const char *program; /* path of the starter */
    const char *words;   /* --launch-command, which replaces the starter; NULL: not given */
    const char *host;    /* name of the node; NULL: all nodes */
    int nnodes;
    const char *const *command; /* command to run there */
    char *const *env;           /* environment of the batch script, for %gpus; NULL: none */
};

struct starter {
    const char *name;    /* value of --launcher */
    const char *sources; /* allocations (names in alloc_table) in which 'auto' may choose it, comma
                            separated */
    const char *program; /* searched in PATH, then in `directory` */
    const char *directory; /* NULL: PATH only */
    bool ours;             /* a helper of ddrun, which reports with --check whether it works here */
    bool starts_all;  /* one call starts all nodes and forwards everything: ddrun replaces itself by
                         it */
    bool takes_stdin; /* it forwards its stdin to the command */
    bool loses_output; /* it does not return output, or splits lines: output comes over the link */
    bool tree;         /* each start is expensive for this machine, and any node can start others */
    bool must_outlive; /* it exits on the job's signals and loses the exit code: start it with
                          signals ignored */
    const char *unset; /* variables that would change its behaviour, to be unset, comma separated;
                          NULL: none */
    const char *options; /* options of the program, not used with --launch-command; NULL: none */
    const char *command; /* words of the command: %program, %host, %n (number of nodes), %command,
                            %line (one argument: exec and the command quoted for a shell), %quoted
                            (each word of the command quoted for a shell), %gpus (srun options for
                            GPUs, if needed) */
};

/* Find by name, or with "auto" the next starter after `after` (NULL: the first) for allocations of
 * this source. NULL: none. */
const struct starter *starter_find(const struct starter *after, const char *name,
                                   const char *source);
/* Choices of --launcher; "auto" and "none" are not starters. */
#define STARTER_NAMES                                                                              \
    "auto,none,srun,pbs_tmrsh,pbsdsh,tm,pals,jsrun,blaunch,qrsh,flux,oarsh,aprun,ssh"
/* Append the command line that runs s->command with this starter. Return 0 or -ENOMEM. */
int starter_command(struct dd_strv *out, const struct starter *st, const struct start *s);
/* Join argv to one line for a shell, with its words quoted where necessary. free(); NULL: out of
 * memory. */
char *starter_quote(const char *const *argv);

#endif
