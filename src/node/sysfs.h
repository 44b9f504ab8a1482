/* Shared by the files of this room only: the lists of numbers in sys/devices/system. */
#ifndef DD_NODE_SYSFS_H
#define DD_NODE_SYSFS_H

#include "base/buf.h"

#include <stdbool.h>

enum { NODE_LIST_MAX = 1 << 16 };

/* One "8" or "0-3" of a list; moves *s behind it and its comma. */
bool node_range_next(const char **s, unsigned long *from, unsigned long *to);
/* The text of ROOT/sys/devices/system/DIR<n>FILE, NULL when it is not there; lent until b changes.
 */
const char *node_sys_read(struct dd_buf *b, const char *root, const char *dir, int n,
                          const char *file);

#endif
