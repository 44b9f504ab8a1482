/* Charges of --blame-window as text, which agents keep for the job's next daemon. Pure. */
#ifndef DD_RDZV_CHARGES_H
#define DD_RDZV_CHARGES_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CHARGES_MAX = 64,          /* nodes */
    CHARGES_NAME = 255,        /* bytes of a node name */
    CHARGES_WHY = 199,         /* bytes of a reason */
    CHARGES_BYTES = 48 * 1024, /* limit of the text of all charges */
};

/* Why a node is left out of rounds while others suffice. */
enum charge_rest { CHARGE_REST_NONE, CHARGE_REST_BLAME, CHARGE_REST_RULE, CHARGE_RESTS };

/* First failures of rounds that were charged to a node. */
struct charge {
    int index;    /* node index; -1: unknown */
    int n, fresh; /* charges: all; since the last decision to leave the node out */
    enum charge_rest rest;
    uint64_t age_ms, before_ms; /* time since the last charge, and since the one before; 0: none */
    const char *name, *why;     /* lent; why: reason of the last charge */
};

struct charges {
    char *text; /* owned; contains the names and reasons in v */
    int count;
    struct charge v[CHARGES_MAX];
};

/* Append a line for c. 0 or -ENOMEM. */
int charge_format(struct dd_buf *out, const struct charge *c);
/* Parse lines of charge_format(); "": none. age_ms is added to each age. The caller owns *ret.
 * -EPROTO (another form, or too many) or -ENOMEM; *ret is unchanged then. */
int charges_parse(struct charges *ret, const char *text, uint64_t age_ms);
void charges_clear(struct charges *c);

/* A file with charges: a line "ddrun-charges 1 UNIX_MS ID", then lines of charge_format(). */
enum { CHARGES_FILE_ID = 511, CHARGES_FILE_MAX = CHARGES_BYTES + CHARGES_FILE_ID + 64 };

/* Append the text of a file. id: job id, the same in all runs of the job. 0, -ENOMEM, or -EINVAL
 * (id empty, too long, or with control characters). */
int charges_file_format(struct dd_buf *out, const char *id, uint64_t now_ms, const char *charges);
/* Check the text of a file. *ret: its charges, lent by `text`; *ret_age_ms: age of the file.
 * -EPROTO (another form, or a file of another job) or -ENOMEM; *ret and *ret_age_ms are unchanged
 * then. */
int charges_file_parse(const char *text, const char *id, uint64_t now_ms, const char **ret,
                       uint64_t *ret_age_ms);

static inline void dd_auto_charges(struct charges *c)
{
    charges_clear(c);
}

#endif
