/* Ports that the agents hold for their workers, as text in JOIN, DONE and PLAN. Pure.
 *
 *   node = [ADDRESS] "/" PORT {"," PORT}        all = node {";" node}, in node rank order
 * A node's first port is for a coordinator, which runs in rank 0 only; the others are for its
 * workers, by local rank. A node without ADDRESS is the daemon's node: plan.master_addr applies.
 */
#ifndef DD_RDZV_PORTS_H
#define DD_RDZV_PORTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "rdzv/plan.h"

#include <stdint.h>

enum { PORTS_MAX = 1 + PLAN_MAX_SLOTS }; /* maximum per node */

/* Format the text of a node. addr NULL or "": ports_append() fills it in. n = 0 gives "". */
int ports_format(struct dd_buf *out, const char *addr, const uint16_t *ports, int n);
/* Return the number of ports in the text of a node (0: ""), or -EINVAL. */
int ports_count(const char *node);
/* Append the text of a node, with addr if it has no address. */
int ports_append(struct dd_buf *out, const char *node, const char *addr);

/* Find "host:port" of the coordinator on the first node; NULL: it has reserved no port. here:
 * address of nodes without ADDRESS. 0, -EPROTO or -ENOMEM. */
int ports_coordinator(char **ret, const char *text, const char *here, struct dd_err *err);
/* Append "host:port" of each rank to the empty *out. 0, -ENOMEM, -EPROTO (malformed, or a rank
 * without a port), or -ENOTSUP (the list was too long to be sent). */
int ports_workers(struct dd_strv *out, const char *text, const char *here, const struct plan *p,
                  struct dd_err *err);

#endif
