#include "agent/gpu_query.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "base/io.h"
#include "node/nvml.h"
#include "worker/command.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    ANSWER_MS = 1000, /* time for an answer; the daemon waits longer for the usage of a node */
    CHILD_MS = 30000, /* time limit of the child; then the driver counts as hung */
    TEXT_MAX = 32 << 10,
};

struct gpu_query {
    const struct round *round;
    void (*then)(void *arg);
    void *arg;
    struct command *command; /* NULL: no query is pending */
    struct event *late;      /* pending while an answer would be in time */
    bool off;
    struct gpu_usage v[GPU_USAGE_MAX];
    int n;
};

/* ---- the query, in a child ---- */

static int gpu_query_in_child(void *arg)
{
    const struct gpu_query *q = arg;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    struct nvml *n = NULL;
    (void)prctl(PR_SET_NAME, "ddrun-gpus");
    if (nvml_open(&n, q->round->cfg->health.nvml, NULL) < 0)
        return 1;
    const int count = nvml_count(n);
    int rc = 0;
    for (int i = 0; i < count && i < GPU_USAGE_MAX && rc == 0; i++) {
        struct gpu_usage u;
        if (nvml_read_usage(n, i, &u))
            rc = gpu_usage_write(&u, &text);
    }
    nvml_close(n);
    return rc < 0 || dd_write_full(STDOUT_FILENO, text.data, text.len) < 0;
}

/* ---- the answer ---- */

static void gpu_query_on_end(void *arg, int code, const char *out)
{
    struct gpu_query *q = arg;
    const bool waits = evtimer_pending(q->late, NULL);
    q->off = code != 0;
    q->n = code == 0 ? gpu_usage_read(out, q->v) : 0;
    command_free(DD_TAKE(q->command));
    (void)evtimer_del(q->late);
    if (q->off)
        dd_log(q->round->cfg->log, DD_LOG_DEBUG, "event=gpus-not-readable code=%d", code);
    if (waits)
        q->then(q->arg);
}

static void gpu_query_on_late(evutil_socket_t fd, short what, void *arg)
{
    struct gpu_query *q = arg;
    (void)fd;
    (void)what;
    q->n = 0;
    q->then(q->arg);
}

bool gpu_query_start(struct gpu_query *q)
{
    const struct timeval limit = dd_timeval(ANSWER_MS * DD_NS_PER_MS);
    const struct command_spec spec = {
        .run = gpu_query_in_child, .run_arg = q, .most_out = TEXT_MAX, .limit_ms = CHILD_MS};
    if (q->command != NULL)
        return evtimer_pending(q->late, NULL);
    q->n = 0;
    if (q->off || evtimer_add(q->late, &limit) < 0)
        return false;
    if (command_start(&q->command, q->round->base, &spec, gpu_query_on_end, q, NULL) < 0) {
        (void)evtimer_del(q->late);
        return false;
    }
    round_protect(q->round, command_pid(q->command));
    return true;
}

const struct gpu_usage *gpu_query_result(const struct gpu_query *q, int *n)
{
    *n = q->n;
    return q->v;
}

/* ---- life ---- */

struct gpu_query *gpu_query_new(const struct round *r, void (*then)(void *arg), void *arg)
{
    struct gpu_query *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return NULL;
    q->round = r;
    q->then = then;
    q->arg = arg;
    q->off = r->cfg->health.gpus == 0;
    q->late = evtimer_new(r->base, gpu_query_on_late, q);
    if (q->late != NULL)
        return q;
    free(q);
    return NULL;
}

void gpu_query_free(struct gpu_query *q)
{
    if (q == NULL)
        return;
    command_free(q->command);
    event_free(q->late);
    free(q);
}
