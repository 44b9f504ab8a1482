/* Ages of the last restarts, so that --max-restarts=N/TIME keeps counting after the loss of a
 * daemon. Clocks differ between nodes, so agents send ages in milliseconds, the youngest first.
 * Pure. */
#ifndef DD_RDZV_RESTART_AGES_H
#define DD_RDZV_RESTART_AGES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

enum {
    RESTART_AGES_MAX = 64
}; /* maximum number of ages sent; older restarts count as old as the last one */

/* Text form "1200 60500"; "": none. restart_ages_parse() returns the number of ages, or -EPROTO
 * with a message. */
int restart_ages_format(struct dd_buf *out, const uint64_t *ages_ms, int n);
int restart_ages_parse(uint64_t ages_ms[RESTART_AGES_MAX], const char *text, struct dd_err *err);

#endif
