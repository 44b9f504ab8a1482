/* Option values for some ranks: "RANKS:VALUE", with RANKS such as "0,3-5" or "all". */
#ifndef DD_WORKER_RULES_H
#define DD_WORKER_RULES_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

/* Check a rule "RANKS:VALUE". The message of -EINVAL names `option` and `example`. */
int rule_check(const char *text, const char *option, const char *example, struct dd_err *err);
/* Return the VALUE of a checked rule if it applies to this rank, otherwise NULL; lent. */
const char *rule_for(const char *rule, int rank);
/* Return the highest rank that a checked rule names; of a range, only its first rank counts, since
 * "4-9999" may stand for all from 4 on. -1: the rule is for all ranks. */
int rule_highest_rank(const char *rule);

/* Check a rule of --env: VALUE is NAME=TEXT. RANKS may be missing for all ranks. NAME alone sets
 * nothing, but selects a variable to forward (rule_env_wanted). */
int rule_check_env(const char *text, struct dd_err *err);
const char *rule_env_wanted(
    const char *rule); /* returns NAME if the rule is NAME alone, otherwise NULL; lent */
/* Set the variables of the checked rules (NULL-terminated, or NULL) for this rank, in their order.
 * Return 0 or -ENOMEM. */
int rules_env(struct dd_strv *env, char *const *rules, int rank);

/* Check a rule of --preload: VALUE is a library, or several separated by colons or spaces. -ENOENT
 * if a path among them cannot be read on this node. */
int rule_check_preload(const char *text, struct dd_err *err);
/* Prepend the libraries for this rank to LD_PRELOAD, in the order of the rules. Return 0 or
 * -ENOMEM. */
int rules_preload(struct dd_strv *env, char *const *rules, int rank);

/* --wrap: prepend a shell to argv that executes VALUE with the arguments. The first of several
 * rules becomes the outermost command. Return 0 or -ENOMEM. */
int rules_wrap(struct dd_strv *argv, char *const *rules, int rank);

#endif
