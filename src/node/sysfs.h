/* Reads lists of numbers in sys/devices/system. Private to src/node. */
#ifndef DD_NODE_SYSFS_H
#define DD_NODE_SYSFS_H

#include "base/buf.h"

#include <stdbool.h>

enum { NODE_LIST_MAX = 1 << 16 };

/* Parse one "8" or "0-3" of a list; advance *s past it and its comma. */
bool node_range_next(const char **s, unsigned long *from, unsigned long *to);
/* Return the text of ROOT/sys/devices/system/DIR<n>FILE, or NULL; lent until b changes. */
const char *node_sys_read(struct dd_buf *b, const char *root, const char *dir, int n,
                          const char *file);

#endif
