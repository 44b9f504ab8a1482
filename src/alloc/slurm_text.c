/* Parsers for values of Slurm's variables. */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parse the digits at *p as a number from min to max, and advance *p. */
static bool take_number(const char **p, int min, int max, int *ret)
{
    char digits[12];
    size_t n = strspn(*p, "0123456789");
    if (n == 0 || n >= sizeof(digits))
        return false;
    memcpy(digits, *p, n);
    digits[n] = '\0';
    *p += n;
    return dd_num_int(digits, min, max, ret) == 0;
}

static int add_tasks(struct alloc_tasks *t, int tasks, int nodes)
{
    if (nodes > HOSTLIST_MAX - (int)t->n || tasks > (HOSTLIST_MAX - t->total) / nodes)
        return -E2BIG;
    int *p = realloc(t->per_node, (t->n + (size_t)nodes) * sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    t->per_node = p;
    for (int i = 0; i < nodes; i++)
        p[t->n++] = tasks;
    t->total += tasks * nodes;
    t->most = tasks > t->most ? tasks : t->most;
    return 0;
}

/* Parse one "4" or "4(x2)" at *p. */
static int read_tasks(struct alloc_tasks *t, const char **p)
{
    int tasks;
    int nodes = 1;
    if (!take_number(p, 0, HOSTLIST_MAX, &tasks))
        return -EINVAL;
    if (strncmp(*p, "(x", 2) == 0) {
        *p += 2;
        if (!take_number(p, 1, HOSTLIST_MAX, &nodes) || **p != ')')
            return -EINVAL;
        (*p)++;
    }
    return add_tasks(t, tasks, nodes);
}

int alloc_tasks_parse(struct alloc_tasks *ret, const char *text, struct dd_err *err)
{
    struct alloc_tasks t = {0};
    const char *p = text;
    int rc;
    while ((rc = read_tasks(&t, &p)) == 0 && *p == ',')
        p++;
    if (rc == 0 && *p == '\0') {
        *ret = t;
        return 0;
    }
    free(t.per_node);
    if (rc == -ENOMEM)
        return alloc_no_memory(err);
    if (rc == -E2BIG)
        return dd_err_set(err, -EINVAL, "'%.80s' has more than %d nodes or tasks", text,
                          HOSTLIST_MAX);
    return dd_err_set(err, -EINVAL, "'%.80s' is not a list of tasks per node such as 4(x2),1",
                      text);
}

int alloc_ports_parse(uint16_t ports[ALLOC_MAX_PORTS], const char *text, struct dd_err *err)
{
    int n = 0;
    const char *p = text;
    for (;;) {
        int first;
        int last;
        if (!take_number(&p, 1, 65535, &first))
            break;
        last = first;
        if (*p == '-' && (p++, !take_number(&p, first, 65535, &last)))
            break;
        for (int port = first; port <= last && n < ALLOC_MAX_PORTS; port++)
            ports[n++] = (uint16_t)port;
        if (*p == '\0')
            return n;
        if (*p++ != ',')
            break;
    }
    return dd_err_set(err, -EINVAL, "'%.80s' is not a list of ports such as 21001-21002", text);
}
