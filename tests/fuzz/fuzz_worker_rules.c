/* worker: any text as a rule for ranks, as a variable of some ranks and as roles; an accepted one
 * can be applied. */
#include "base/auto.h"
#include "framework/tf_roles.h"
#include "worker/rules.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* True if a rule of --env, whose ranks may be omitted, sets a variable for rank 0. */
static bool sets(const char *rule)
{
    const size_t n = strcspn(rule, "=");
    return memchr(rule, ':', n) != NULL ? rule_for(rule, 0) != NULL : rule[n] == '=';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    char *rules[] = {text, NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(strv) struct dd_strv argv = {0};
    struct tf_roles roles;
    if (text == NULL)
        return 0;
    if (rule_check_env(text, NULL) == 0 && rules_env(&env, rules, 0) == 0 &&
        (env.n == 1) != sets(text))
        abort();
    if (rule_check(text, "--wrap", "x", NULL) == 0 && rules_wrap(&argv, rules, 3) == 0 &&
        (argv.n == 4) != (rule_for(text, 3) != NULL) && strlen(text) < 60000)
        abort();
    DD_AUTO(strv) struct dd_strv preload = {0};
    if (rule_check(text, "--preload", "x", NULL) == 0 && rules_preload(&preload, rules, 3) == 0 &&
        (preload.n == 1) != (rule_for(text, 3) != NULL) && strlen(text) < 60000)
        abort();
    if (tf_roles_parse(&roles, text, NULL) == 0 && tf_roles_fit(&roles, 100, NULL) == 0 &&
        tf_roles_task(&roles, 99).index >= 100)
        abort();
    return 0;
}
