/* The scheduler's marks: the nodes that it takes out of service, and why. Pure. */
#ifndef DD_RDZV_MARKS_H
#define DD_RDZV_MARKS_H

#include <stdbool.h>
#include <stddef.h>

enum { RDZV_MARK_NAME = 255, RDZV_MARK_WHY = 255 };

struct rdzv_mark {
    const char *name, *why; /* lent by .text of the marks */
};

struct rdzv_marks {
    char *text;          /* owned */
    struct rdzv_mark *v; /* owned; sorted by name, without duplicates */
    size_t n;
};

/* Parse lines "NAME<tab>WHY"; "": none. The caller owns *ret. -EPROTO (a line of another form, or
 * too long) or -ENOMEM; *ret is unchanged then. */
int rdzv_marks_parse(struct rdzv_marks *ret, const char *text);
/* Return why the node is marked, lent; NULL: it is not. A name without a domain matches one with
 * a domain. */
const char *rdzv_marks_why(const struct rdzv_marks *m, const char *name);
void rdzv_marks_clear(struct rdzv_marks *m);

static inline void dd_auto_marks(struct rdzv_marks *m)
{
    rdzv_marks_clear(m);
}

#endif
