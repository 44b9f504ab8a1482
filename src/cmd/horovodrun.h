/* horovodrun's command line where it differs from ours: how many workers in all, and hosts with
 * slots. docs/horovod.md has the whole table. */
#ifndef DD_CMD_HOROVODRUN_H
#define DD_CMD_HOROVODRUN_H

#include "base/auto.h"
#include "base/err.h"

#include <stdbool.h>

struct ddrun_options;

/* What -np, -H host:slots, --min-np and --max-np say. */
struct horovodrun {
    int np, min_np, max_np; /* 0: not said */
    char *list;             /* the hosts without their slots; NULL: they have none */
    int *slots;             /* [n] of the hosts in the list */
    int n;
};

bool horovodrun_is_name(const char *argv0);
/* Once after parsing: takes the slots out of --hosts, or with -np out of the host file, and makes
 * numbers of nodes of --min-np and --max-np. What it makes is lent to *o. -EINVAL, or what the file
 * says. */
int horovodrun_apply(struct horovodrun *h, struct ddrun_options *o, struct dd_err *err);
/* How many workers the node of this index (-1: not known) among nnodes has; 0: that is not for us
 * to say. */
int horovodrun_nproc(const struct horovodrun *h, int index, int nnodes, struct dd_err *err);
void horovodrun_done(struct horovodrun *h);

DD_AUTO_DEFINE(horovodrun, struct horovodrun *, horovodrun_done);

#endif
