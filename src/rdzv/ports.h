/* Ports that the agents hold for their workers, as text in JOIN, DONE and PLAN. Pure.
 *
 *   node = [ADDRESS] "/" PORT {"," PORT}        all = node {";" node}, in node rank order
 *
 * A node's first port is for what rank 0 alone listens on (a coordinator); the others are its
 * workers', by local rank. Without ADDRESS it is the daemon's node: plan.master_addr.
 */
#ifndef DD_RDZV_PORTS_H
#define DD_RDZV_PORTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "rdzv/plan.h"

#include <stdint.h>

enum { PORTS_MAX = 1 + PLAN_MAX_SLOTS }; /* of one node */

/* One node's text from its address (NULL or "": to be filled in) and ports. n = 0 gives "". */
int ports_format(struct dd_buf *out, const char *addr, const uint16_t *ports, int n);
/* How many ports the text of one node has (0: ""), or -EINVAL. */
int ports_count(const char *node);
/* Appends the text of a node, with addr where it says none. */
int ports_append(struct dd_buf *out, const char *node, const char *addr);

/* "host:port" of the first node's coordinator, NULL when it holds no port. here: the address of
 * nodes that say none. -EPROTO, -ENOMEM. */
int ports_coordinator(char **ret, const char *text, const char *here, struct dd_err *err);
/* "host:port" of each rank, appended to the empty *out. -EPROTO also when some have none, -ENOTSUP
 * when all together were too long to be told. */
int ports_workers(struct dd_strv *out, const char *text, const char *here, const struct plan *p,
                  struct dd_err *err);

#endif
