#include "rdzv/plan.h"

#include "base/strv.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void plan_clear(struct plan *p)
{
    free(p->master_addr);
    free(p->sizes);
    free(p->nodes);
    free(p->coordinator);
    free(p->token);
    dd_strv_done(&p->endpoints);
    *p = (struct plan){0};
}

int plan_first_rank(const int *sizes, int node_rank)
{
    int first = 0;
    for (int i = 0; i < node_rank; i++)
        first += sizes[i];
    return first;
}

int plan_sizes_format(struct dd_buf *out, const int *sizes, int n)
{
    for (int i = 0; i < n;) {
        int run = 1;
        while (i + run < n && sizes[i + run] == sizes[i])
            run++;
        int rc = dd_buf_printf(out, run > 1 ? "%s%d(x%d)" : "%s%d", i > 0 ? "," : "", sizes[i],
                               run);
        if (rc < 0)
            return rc;
        i += run;
    }
    return 0;
}

/* Parse "2(x3)" or "1": size and number of repetitions. */
static int parse_run(char *item, int *size, int *times)
{
    char *open = strchr(item, '(');
    *times = 1;
    if (open != NULL) {
        size_t len = strlen(open);
        if (len < 4 || open[1] != 'x' || open[len - 1] != ')')
            return -EINVAL;
        open[len - 1] = *open = '\0';
        if (dd_num_int(open + 2, 1, PLAN_MAX_NODES, times) < 0)
            return -EINVAL;
    }
    return dd_num_int(item, 1, PLAN_MAX_SLOTS, size) < 0 ? -EINVAL : 0;
}

int plan_sizes_parse(int **ret, int *ret_n, const char *text, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv items = {0};
    DD_AUTO(free) int *sizes = NULL;
    int n = 0;
    if (dd_strv_split(&items, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < items.n; i++) {
        int size;
        int times;
        if (parse_run(items.v[i], &size, &times) < 0)
            return dd_err_set(
                err, -EINVAL,
                "invalid list of sizes '%s': expected sizes from 1 to %d, as in 4(x2),1", text,
                PLAN_MAX_SLOTS);
        if (times > PLAN_MAX_NODES - n)
            return dd_err_set(err, -E2BIG, "too many nodes in the list of sizes (limit %d)",
                              PLAN_MAX_NODES);
        int *more = realloc(sizes, (size_t)(n + times) * sizeof(*sizes));
        if (more == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        sizes = more;
        for (int k = 0; k < times; k++)
            sizes[n++] = size;
    }
    if (n == 0)
        return dd_err_set(err, -EINVAL, "the list of sizes is empty");
    *ret = DD_TAKE(sizes);
    *ret_n = n;
    return 0;
}
