/* alloc: any text as SLURM_STEP_TASKS_PER_NODE and as SLURM_STEP_RESV_PORTS. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tasks(const char *text)
{
    struct alloc_tasks t = {0};
    struct dd_err err = {.text = ""};
    int rc = alloc_tasks_parse(&t, text, &err);
    int total = 0;
    int most = 0;
    for (size_t i = 0; i < t.n; i++) {
        total += t.per_node[i];
        most = t.per_node[i] > most ? t.per_node[i] : most;
    }
    if (rc == 0 ? total != t.total || most != t.most || t.n == 0 || total > HOSTLIST_MAX
                : rc != -EINVAL || t.per_node != NULL || err.text[0] == '\0')
        abort();
    free(t.per_node);
}

static void check_ports(const char *text)
{
    uint16_t ports[ALLOC_MAX_PORTS];
    struct dd_err err = {.text = ""};
    int n = alloc_ports_parse(ports, text, &err);
    if (n > ALLOC_MAX_PORTS || n == 0 || (n < 0 && (n != -EINVAL || err.text[0] == '\0')))
        abort();
    for (int i = 0; i < n; i++)
        if (ports[i] == 0)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    if (text != NULL) {
        check_tasks(text);
        check_ports(text);
    }
    return 0;
}
