/* The leader's entry in etcd: one JSON object. Pure. The decoder accepts untrusted input. */
#ifndef DD_WEB_ENTRY_H
#define DD_WEB_ENTRY_H

#include "base/auto.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stdint.h>

enum { ENTRY_ADDRS_MAX = 8, ENTRY_ID = 16, ENTRY_SECRET = 64, ENTRY_NODE_MAX = 255 };

struct entry {
    char id[ENTRY_ID + 1]; /* random id of the agent that wrote the entry: hexadecimal digits */
    char node[ENTRY_NODE_MAX + 1];
    struct dd_strv addrs; /* numeric */
    int port;
    int64_t epoch;
    bool started; /* a round has started: this is the job to join */
    char secret[ENTRY_SECRET +
                1]; /* secret of the job, hexadecimal digits; "": the nodes have another secret */
};

/* The caller frees *ret. -ENOMEM. */
int entry_encode(char **ret, const struct entry *e);
int entry_decode(struct entry *ret, const char *text,
                 struct dd_err *err); /* entry_done() frees *ret */
void entry_done(struct entry *e);

static inline void dd_auto_entry(struct entry *e)
{
    entry_done(e);
}

#endif
