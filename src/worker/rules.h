/* What is said for some ranks: "RANKS:VALUE" with RANKS as "0,3-5" or "all". */
#ifndef DD_WORKER_RULES_H
#define DD_WORKER_RULES_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

/* Whether the text is such a rule; `option` and `example` go into the sentence of -EINVAL. */
int rule_check(const char *text, const char *option, const char *example, struct dd_err *err);
/* The VALUE of a checked rule if it is for this rank, else NULL; lent. */
const char *rule_for(const char *rule, int rank);

/* --env: VALUE is NAME=TEXT. For all ranks it may stand alone, NAME too: then it sets nothing and
 * only says that the variable of this name is wanted (rule_env_wanted). */
int rule_check_env(const char *text, struct dd_err *err);
const char *rule_env_wanted(const char *rule); /* NAME alone, lent; else NULL */
/* Sets what the checked rules (NULL-ended, or NULL) say for this rank, in their order. 0 or
 * -ENOMEM. */
int rules_env(struct dd_strv *env, char *const *rules, int rank);

/* --preload: VALUE is a library, or several between colons; -ENOENT: one that is written as a path
 * cannot be read here. */
int rule_check_preload(const char *text, struct dd_err *err);
/* Puts the libraries for this rank in front of LD_PRELOAD, in the order of the rules. 0 or -ENOMEM.
 */
int rules_preload(struct dd_strv *env, char *const *rules, int rank);

/* --wrap: puts a shell that replaces itself by VALUE and the arguments in front of argv; of several
 * rules the first one's command is the outermost. 0 or -ENOMEM. */
int rules_wrap(struct dd_strv *argv, char *const *rules, int rank);

#endif
