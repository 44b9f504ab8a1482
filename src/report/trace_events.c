#include "report/trace_events.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = {
    [TRACE_SPAN] = "X", [TRACE_INSTANT] = "i", [TRACE_METADATA] = "M"};

static json_t *trace_event_text(const char *s)
{
    DD_AUTO(free) char *clean = strdup(s);
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : NULL;
}

/* Both ends are truncated to µs, so that spans which follow each other do not overlap. */
static json_t *trace_event_json(const struct trace_event *e)
{
    const json_int_t begin = (json_int_t)(e->begin_ns / 1000);
    json_t *o = json_object();
    int rc = json_object_set_new(o, "name", trace_event_text(e->name));
    rc |= json_object_set_new(o, "ph", json_string(types[e->type]));
    rc |= json_object_set_new(o, "pid", json_integer(e->pid));
    rc |= json_object_set_new(o, "tid", json_integer(e->tid));
    if (e->type != TRACE_METADATA)
        rc |= json_object_set_new(o, "ts", json_integer(begin));
    if (e->type == TRACE_SPAN)
        rc |= json_object_set_new(o, "dur", json_integer((json_int_t)(e->end_ns / 1000) - begin));
    if (e->type == TRACE_INSTANT)
        rc |= json_object_set_new(o, "s", json_string(e->pid == TRACE_PID_JOB ? "p" : "t"));
    if (e->args != NULL)
        rc |= json_object_set_new(o, "args", e->args);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

int trace_event_put(struct dd_buf *out, bool *started, const struct trace_event *e)
{
    json_t *o = trace_event_json(e);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    const int rc = text == NULL ? -ENOMEM
                                : dd_buf_printf(out, "%s\n%s", *started ? "," : "[", text);
    *started |= rc == 0;
    return rc;
}

int trace_event_put_name(struct dd_buf *out, bool *started, int pid, int tid, const char *name)
{
    json_t *args = json_object();
    (void)json_object_set_new(args, "name", trace_event_text(name));
    return trace_event_put(out, started,
                           &(struct trace_event){.type = TRACE_METADATA,
                                                 .name = tid < 0 ? "process_name" : "thread_name",
                                                 .pid = pid,
                                                 .tid = tid < 0 ? 0 : tid,
                                                 .args = args});
}

int trace_event_put_phase(struct dd_buf *out, bool *started, int pid, int round,
                          const struct phase *p)
{
    const struct phase_row *row = &phase_rows[p->kind];
    json_t *args = round >= 0 || row->value != NULL ? json_object() : NULL;
    if (round >= 0)
        (void)json_object_set_new(args, "round", json_integer(round));
    if (row->value != NULL)
        (void)json_object_set_new(args, row->value, json_integer(p->value));
    return trace_event_put(out, started,
                           &(struct trace_event){.type = row->instant ? TRACE_INSTANT : TRACE_SPAN,
                                                 .name = row->name,
                                                 .pid = pid,
                                                 .tid = trace_tid_of(p->rank),
                                                 .begin_ns = (uint64_t)p->begin_ns,
                                                 .end_ns = (uint64_t)p->end_ns,
                                                 .args = args});
}
