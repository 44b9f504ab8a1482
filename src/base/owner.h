/* A record in a file of the process that owns it, so that a later process can detect stale files.
 */
#ifndef DD_BASE_OWNER_H
#define DD_BASE_OWNER_H

#include <stdbool.h>

enum { DD_OWNER_MAX = 160 };

/* Return the start time of a process in ticks since boot; 0: no such process. Src: proc(5), stat,
 * field 22. */
unsigned long long dd_process_start(long pid);
/* Write one line that identifies this process: boot, PID namespace, pid, start time. */
void dd_owner_text(char out[DD_OWNER_MAX]);
/* True if text is a line of dd_owner_text(). */
bool dd_owner_is(const char *text);
/* True if the process has certainly ended: it ran during this boot and in this PID namespace. */
bool dd_owner_is_gone(const char *text);

#endif
