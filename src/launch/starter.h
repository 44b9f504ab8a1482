/* Starters: the commands that run something on the other nodes of an allocation, one row each.
 * Pure. */
#ifndef DD_LAUNCH_STARTER_H
#define DD_LAUNCH_STARTER_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

struct start {
    const char *program; /* the starter's path */
    const char *words;   /* what the user wants in its place (--launch-command), NULL */
    const char *host;    /* of the node; NULL: all of them */
    int nnodes;
    const char *const *command; /* to run there */
    char *const *env;           /* of the script */
};

struct starter {
    const char *name; /* --launcher=NAME */
    const char *
        sources; /* of the allocations (alloc_table) in which it is used unasked, comma separated */
    const char *program; /* looked for in PATH, then in `folder` */
    const char *folder;  /* NULL: nowhere else */
    bool ours;           /* a helper of ddrun's, which tells whether it works here (--check) */
    bool starts_all;   /* one call is for all nodes and loses nothing: ddrun becomes that command */
    bool takes_stdin;  /* what it reads from stdin arrives there */
    bool loses_output; /* what is written there does not come back, or torn: it comes over the link
                        */
    bool tree; /* each start costs this machine much, and any node can start others: they do so */
    bool
        must_outlive; /* it dies of the job's signals and loses the exit code: it is started deaf */
    const char *unset;   /* variables that would change what it does, comma separated; NULL */
    const char *options; /* of the program, unless the user has said his own words; NULL */
    const char *command; /* words: %program, %host, %n nodes, %command, %line: the same for a shell,
                            %gpus: of srun, where they have to be said */
};

/* By name, or "auto": those for allocations of this source, one after the other, first after NULL.
 * NULL: there is none. */
const struct starter *starter_find(const struct starter *after, const char *name,
                                   const char *source);
/* For options; "auto" and "none" are not starters. */
#define STARTER_NAMES                                                                              \
    "auto,none,srun,pbs_tmrsh,pbsdsh,tm,pals,jsrun,blaunch,qrsh,flux,oarsh,aprun,ssh"
/* 0 or -ENOMEM */
int starter_command(struct dd_strv *out, const struct starter *st, const struct start *s);
/* One word that a shell reads as the words of argv. free(); NULL: no memory. */
char *starter_quote(const char *const *argv);

#endif
