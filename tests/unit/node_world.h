/* An artificial machine for the tests of node: files below a root of its own, in place of /proc,
 * /sys and /dev. */
#ifndef DD_TESTS_NODE_WORLD_H
#define DD_TESTS_NODE_WORLD_H

#include "base/auto.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/test_node.XXXXXX";

/* Write the file of that name below root; create its directories. */
__attribute__((format(printf, 2, 3))) static inline void put(const char *text, const char *fmt, ...)
{
    DD_AUTO(free) char *name = NULL;
    DD_AUTO(free) char *full = NULL;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&name, fmt, ap) > 0);
    va_end(ap);
    assert_true(asprintf(&full, "%s/%s", root, name) > 0);
    for (char *slash = full + sizeof(root); (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static inline int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL ? -1 : 0;
}

static inline int remove_root(void **state)
{
    char cmd[64];
    (void)state;
    (void)snprintf(cmd, sizeof(cmd), "rm -r %s", root);
    return system(cmd);
}

/* Set the CPUs of a list such as "0-3,8". */
static inline void mask_of(cpu_set_t *set, const char *list)
{
    CPU_ZERO(set);
    for (char *end; *list != '\0'; list = *end == ',' ? end + 1 : end) {
        long from = strtol(list, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (; from <= to; from++)
            CPU_SET((int)from, set);
    }
}

#endif
