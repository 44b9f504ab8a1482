#include "cmd/ddctl_top_json.h"

#include "cmd/ddctl_job.h"

#include <errno.h>
#include <stdlib.h>

static json_t *top_json_number(int64_t v)
{
    return v >= 0 ? json_integer((json_int_t)v) : json_null();
}

static json_t *top_json_seconds(int64_t us)
{
    return us >= 0 ? json_real((double)us / 1e6) : json_null();
}

static json_t *top_json_text(const char *text)
{
    return text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *top_json_gpu(const json_t *gpu)
{
    static const char *const names[] = {
        "index", "percent", "memory_bytes", "memory_total_bytes", "clock_mhz", "clock_max_mhz"};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)json_object_set_new(o, names[i], top_json_number(top_gpu_number(gpu, names[i])));
    return o;
}

static json_t *top_json_gpus(const struct top_row *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->gpu.n; i++)
        (void)json_array_append_new(list, top_json_gpu(json_array_get(r->gpus, (size_t)i)));
    return list;
}

static json_t *top_json_worker(const struct top_row *r)
{
    return json_pack("{s:i,s:i,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "rank", r->rank,
                     "local_rank", r->local_rank, "node", r->node, "state", r->state, "pid",
                     top_json_number(r->pid > 0 ? r->pid : -1), "cpu_percent",
                     top_json_number(r->cpu_percent), "memory_bytes", top_json_number(r->memory),
                     "gpus", top_json_gpus(r), "step", top_json_number(r->step), "step_seconds",
                     top_json_seconds(r->step_us), "failure", top_json_text(r->failure),
                     "last_line", top_json_text(r->line));
}

static json_t *top_json_workers(const struct top_job *j)
{
    json_t *list = json_array();
    for (size_t i = 0; i < j->n; i++)
        if (j->rows[i].rank >= 0)
            (void)json_array_append_new(list, top_json_worker(&j->rows[i]));
    return list;
}

static json_t *top_json_nodes(const struct top_job *j)
{
    const json_t *nodes = json_object_get(json_object_get(j->sample, "status"), "nodes");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        (void)json_array_append_new(
            list, json_pack("{s:s,s:s,s:i,s:i}", "name", json_text(node, "name"), "state",
                            json_text(node, "state"), "workers", json_number(node, "workers", 0),
                            "charges", json_number(node, "charges", 0)));
    }
    return list;
}

static json_t *top_json_stragglers(const struct top_job *j)
{
    const json_t *stragglers = top_job_stragglers(j);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(stragglers); i++) {
        const json_t *g = json_array_get(stragglers, i);
        (void)json_array_append_new(
            list, json_pack("{s:i,s:s,s:s}", "rank", json_number(g, "rank", 0), "node",
                            json_text(g, "node"), "text", json_text(g, "text")));
    }
    return list;
}

int top_job_json(const struct top_job *j, struct dd_buf *out)
{
    json_t *o = json_pack(
        "{s:i,s:s,s:s,s:i,s:i,s:i,s:o,s:o,s:s,s:i,s:i,s:o,s:o,s:o,s:o,s:o}", "version", 1, "job",
        j->id, "state", j->state, "round", j->round, "restarts", j->restarts, "max_restarts",
        j->max_restarts, "seconds", top_json_number(j->seconds), "step", top_json_number(j->step),
        "missing", j->missing, "running", j->running, "failed", j->failed, "cpu_percent",
        top_json_number(j->has_cpu ? j->cpu_percent : -1), "memory_bytes",
        top_json_number(j->has_memory ? j->memory : -1), "nodes", top_json_nodes(j), "workers",
        top_json_workers(j), "stragglers", top_json_stragglers(j));
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15))
                                         : NULL;
    json_decref(o);
    return text == NULL || dd_buf_printf(out, "%s\n", text) < 0 ? -ENOMEM : 0;
}
