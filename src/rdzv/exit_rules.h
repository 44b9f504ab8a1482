/* --exit-rules: what the exit code of a worker means for the job. Pure. */
#ifndef DD_RDZV_EXIT_RULES_H
#define DD_RDZV_EXIT_RULES_H

#include "base/buf.h"
#include "base/err.h"

enum exit_rule {
    EXIT_RESTART,    /* a failure like any other */
    EXIT_STOP,       /* end the job with this code, without a restart */
    EXIT_MOVE,       /* restart; a spare node takes the place of this node */
    EXIT_REQUEUE,    /* end the job with this code, and ask the scheduler to requeue it */
    EXIT_NO_REQUEUE, /* if the job ends with this code, do not requeue it */
    EXIT_RULE_MAX,
};

enum { EXIT_RULES_TEXT = 8192 }; /* bytes; more than exit_rules_format() writes */

struct exit_rules {
    unsigned char of[256]; /* enum exit_rule, by exit code */
};

const char *exit_rule_name(enum exit_rule rule);

/* Return the rule for an exit code; EXIT_RESTART for a code out of range. */
static inline enum exit_rule exit_rules_get(const struct exit_rules *r, int code)
{
    return code > 0 && code < 256 ? (enum exit_rule)r->of[code] : EXIT_RESTART;
}

/* Parse "16=move,64-78=stop,SIGBUS=move": codes from 1 to 255, ranges, and signals, which are
 * 128 plus their number. A later rule replaces an earlier one. Returns 0, or -EINVAL with a
 * message.
 */
int exit_rules_parse(struct exit_rules *ret, const char *text, struct dd_err *err);
/* Append rules that exit_rules_parse() reads; "": none. 0 or -errno. */
int exit_rules_format(struct dd_buf *out, const struct exit_rules *r);

#endif
