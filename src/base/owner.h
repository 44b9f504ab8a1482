/* Who has made a file, so that a later process can tell when nobody owns it any more. */
#ifndef DD_BASE_OWNER_H
#define DD_BASE_OWNER_H

#include <stdbool.h>

enum { DD_OWNER_MAX = 160 };

/* When a process began, in ticks since the boot; 0: there is none. Src: proc(5), stat, field 22. */
unsigned long long dd_process_start(long pid);
/* One line about this process: boot, name space of process ids, pid, start. */
void dd_owner_text(char out[DD_OWNER_MAX]);
/* Whether text is such a line. */
bool dd_owner_is(const char *text);
/* The process has ended, beyond doubt: it was one of this boot and of our name space. */
bool dd_owner_is_gone(const char *text);

#endif
