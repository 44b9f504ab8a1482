/* When the last restarts were: what --max-restarts=N/TIME counts goes on after the loss of a
 * daemon. Clocks differ between nodes, so ages travel: in milliseconds, the youngest first. Pure.
 */
#ifndef DD_RDZV_RESTART_AGES_H
#define DD_RDZV_RESTART_AGES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

enum { RESTART_AGES_MAX = 64 }; /* are told; older ones count as old as the last of these */

/* "1200 60500", and back; "" is none. parse: how many, or -EPROTO with a sentence. */
int restart_ages_format(struct dd_buf *out, const uint64_t *ages_ms, int n);
int restart_ages_parse(uint64_t ages_ms[RESTART_AGES_MAX], const char *text, struct dd_err *err);

#endif
