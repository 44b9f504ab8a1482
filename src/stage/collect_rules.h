/* The rules of --collect: which files of a node are collected, and under which names. Pure. */
#ifndef DD_STAGE_COLLECT_RULES_H
#define DD_STAGE_COLLECT_RULES_H

#include "base/err.h"
#include "base/strv.h"

/* Split "PATTERN:DIR" at the last colon. The caller frees both. -EINVAL with a message that names
 * no option. */
int collect_rule_split(const char *rule, char **ret_pattern, char **ret_dir, struct dd_err *err);
/* Replace $NAME and ${NAME} by variables of env, and put `directory` before a relative pattern. The
 * caller frees *ret. -EINVAL with a message, such as a variable that is not set. */
int collect_rule_expand(char **ret, const char *pattern, const char *directory, char *const *env,
                        struct dd_err *err);
/* Return the length of the leading directories of an absolute pattern that contain no wildcard,
 * with the slash after them. What follows is the path of a file in DIR. */
size_t collect_rule_prefix(const char *pattern);

#endif
