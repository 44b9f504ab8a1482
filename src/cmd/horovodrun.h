/* horovodrun's command line where it differs from ddrun's: total number of workers, and hosts with
 * slots. docs/horovod.md has the complete table. */
#ifndef DD_CMD_HOROVODRUN_H
#define DD_CMD_HOROVODRUN_H

#include "base/auto.h"
#include "base/err.h"

#include <stdbool.h>

struct ddrun_options;

/* Values of -np, -H host:slots, --min-np and --max-np. */
struct horovodrun {
    int np, min_np, max_np; /* 0: not set */
    const char *np_word,
        *nproc_word; /* the options as typed: "-n", "--ntasks-per-node"; borrowed */
    char *list;      /* host list without the slots; NULL: there were no slots */
    int *slots;      /* [n] slots of the hosts in the list */
    int n;
};

bool horovodrun_is_name(const char *argv0);
/* To be called once after parsing: remove the slots from --hosts, or with -np read them from the
 * host file, and convert --min-np and --max-np to numbers of nodes. *o borrows the results from *h.
 * Return 0, -EINVAL for invalid values, -ENOMEM, or the error of reading the file. */
int horovodrun_apply(struct horovodrun *h, struct ddrun_options *o, struct dd_err *err);
/* Return the number of workers of the node with this index (-1: unknown) among nnodes; 0:
 * determined by other options. */
int horovodrun_nproc(const struct ddrun_options *o, int index, int nnodes, struct dd_err *err);
void horovodrun_done(struct horovodrun *h);

DD_AUTO_DEFINE(horovodrun, struct horovodrun *, horovodrun_done);

#endif
