/* Writes what NCCL reports about its communicators: as lines for users, and as JSON. */
#include "base/utf8.h"
#include "report/nccl_ras.h"
#include "report/report_lines_inner.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { RAS_RANKS_TEXT = 32 << 10 };

static const char *const ras_kinds[NCCL_RAS_KIND_MAX] = {
    [NCCL_RAS_COUNTS] = "operations", [NCCL_RAS_STATUS] = "status", [NCCL_RAS_ERROR] = "error",
    [NCCL_RAS_SILENT] = "silent",     [NCCL_RAS_DEAD] = "dead",
};

/* ---- lines ---- */

/* Append "rank 2", "ranks 0-1,3", "3 ranks, among them 0-1", "rank 1 of the communicator (pid
 * 4711)", "the process with pid 4711" or "3 ranks". */
static int ras_put_set(const struct nccl_ras_set *set, struct dd_buf *out)
{
    const size_t n = rank_set_count(&set->ranks);
    if (n > 0 && n == (size_t)set->count)
        return rank_set_name(&set->ranks, out);
    if (n > 0) {
        int rc = dd_buf_printf(out, "%d ranks, among them ", set->count);
        return rc < 0 ? rc : rank_set_text_short(&set->ranks, out);
    }
    if (set->count == 1 && set->n == 1 && set->v[0].number >= 0)
        return dd_buf_printf(out, "rank %d of the communicator (pid %d)", set->v[0].number,
                             set->v[0].pid);
    if (set->count == 1 && set->n == 1)
        return dd_buf_printf(out, "the process with pid %d", set->v[0].pid);
    return dd_buf_printf(out, "%d rank%s", set->count, set->count == 1 ? "" : "s");
}

static int ras_put_property(const struct nccl_ras_finding *f, const struct nccl_ras_set *set,
                            struct dd_buf *out)
{
    switch (f->kind) {
    case NCCL_RAS_COUNTS:
        return dd_buf_printf(out, " at %llu", (unsigned long long)set->operation);
    case NCCL_RAS_STATUS:
        return dd_buf_printf(out, " %s", set->what);
    case NCCL_RAS_ERROR:
        return dd_buf_printf(out, ": %s", set->what);
    case NCCL_RAS_SILENT:
        return dd_buf_puts(out, " did not answer");
    case NCCL_RAS_DEAD:
    case NCCL_RAS_KIND_MAX:
        break;
    }
    return dd_buf_puts(out, " considered dead");
}

static int ras_put_finding(const struct nccl_ras_finding *f, struct dd_buf *out)
{
    int rc = 0;
    if (f->communicator[0] != '\0')
        rc = dd_buf_printf(out, "communicator %s", f->communicator);
    if (rc == 0 && f->communicator[0] != '\0' && f->size > 0)
        rc = dd_buf_printf(out, " of %d rank%s", f->size, f->size == 1 ? "" : "s");
    if (rc == 0 && f->communicator[0] != '\0')
        rc = dd_buf_puts(out, ": ");
    if (rc == 0 && f->kind == NCCL_RAS_COUNTS)
        rc = dd_buf_printf(out, "%s operation counts differ: ",
                           f->operation[0] != '\0' ? f->operation : "collective");
    if (rc == 0 && f->kind == NCCL_RAS_STATUS)
        rc = dd_buf_puts(out, "the status differs: ");
    for (int i = 0; i < f->nsets && rc == 0; i++) {
        if (i > 0)
            rc = dd_buf_puts(out, ", ");
        if (rc == 0)
            rc = ras_put_set(&f->sets[i], out);
        if (rc == 0)
            rc = ras_put_property(f, &f->sets[i], out);
    }
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

int nccl_ras_text(const struct nccl_ras *s, const char *indent, size_t lines, struct dd_buf *out)
{
    const size_t before = out->len;
    const size_t most = s->n > lines && lines > 0 ? lines - 1 : s->n;
    int rc = 0;
    if (!s->answered)
        return 0;
    if (s->n == 0 && s->communicators == 0)
        rc = dd_buf_printf(out, "%sno communicators\n", indent);
    else if (s->n == 0)
        rc = dd_buf_printf(out, "%s%d communicator%s; no rank differs from the others\n", indent,
                           s->communicators, s->communicators == 1 ? "" : "s");
    for (size_t i = 0; i < most && rc == 0; i++) {
        rc = dd_buf_puts(out, indent);
        if (rc == 0)
            rc = ras_put_finding(&s->v[i], out);
    }
    if (rc == 0 && most < s->n)
        rc = dd_buf_printf(out, "%s%zu further findings\n", indent, s->n - most);
    return rc == 0 ? report_clean(out, before) : rc;
}

/* ---- JSON ---- */

static json_t *ras_set_json(const struct nccl_ras_set *set)
{
    DD_AUTO(buf) struct dd_buf ranks = DD_BUF_INIT(RAS_RANKS_TEXT);
    json_t *named = json_array();
    for (size_t i = 0; i < set->n; i++)
        (void)json_array_append_new(named, json_pack("[i,i]", set->v[i].number, set->v[i].pid));
    if (rank_set_text(&set->ranks, &ranks) < 0)
        dd_buf_clear(&ranks);
    return json_pack("{s:I s:s s:i s:s s:o}", "operation", (json_int_t)set->operation, "what",
                     set->what, "count", set->count, "ranks", dd_buf_str(&ranks), "named", named);
}

static json_t *ras_finding_json(const struct nccl_ras_finding *f)
{
    json_t *sets = json_array();
    for (int i = 0; i < f->nsets; i++)
        (void)json_array_append_new(sets, ras_set_json(&f->sets[i]));
    return json_pack("{s:s s:s s:i s:s s:o}", "kind", ras_kinds[f->kind], "communicator",
                     f->communicator, "size", f->size, "operation", f->operation, "sets", sets);
}

json_t *nccl_ras_json(const struct nccl_ras *s)
{
    if (!s->answered && s->nprocesses == 0)
        return json_null();
    json_t *findings = json_array();
    json_t *o = json_pack("{s:b s:i s:o}", "answered", s->answered, "communicators",
                          s->communicators, "findings", findings);
    for (size_t i = 0; i < s->n; i++)
        (void)json_array_append_new(findings, ras_finding_json(&s->v[i]));
    json_t *processes = s->nprocesses > 0 ? json_array() : NULL;
    for (size_t i = 0; i < s->nprocesses; i++)
        (void)json_array_append_new(processes,
                                    json_pack("[i,i]", s->processes[i].rank, s->processes[i].pid));
    if (o != NULL && processes != NULL)
        (void)json_object_set_new(o, "processes", processes);
    else
        json_decref(processes);
    return o;
}

static bool ras_parse_int(const json_t *o, int least, int *ret)
{
    const json_int_t n = json_integer_value(o);
    *ret = n >= least && n < RANK_SET_MAX ? (int)n : least;
    return json_is_integer(o) && n >= least && n < RANK_SET_MAX;
}

static bool ras_parse_pair(const json_t *o, int least, int *first, int *second)
{
    return json_array_size(o) == 2 && ras_parse_int(json_array_get(o, 0), least, first) &&
           ras_parse_int(json_array_get(o, 1), 0, second);
}

static int ras_parse_set(struct nccl_ras *ret, struct nccl_ras_finding *f, const json_t *o,
                         bool of_node)
{
    struct nccl_ras_set *set = &f->sets[f->nsets++];
    const char *what = json_string_value(json_object_get(o, "what"));
    const char *ranks = json_string_value(json_object_get(o, "ranks"));
    const json_t *named = json_object_get(o, "named");
    const json_int_t operation = json_integer_value(json_object_get(o, "operation"));
    if (what == NULL || ranks == NULL || operation < 0 ||
        !ras_parse_int(json_object_get(o, "count"), 0, &set->count) ||
        json_array_size(named) > NCCL_RAS_NAMED)
        return -EPROTO;
    set->operation = (uint64_t)operation;
    nccl_ras_copy_name(set->what, what, strlen(what));
    int rc = of_node && ranks[0] != '\0' ? -EPERM : 0;
    if (rc == 0 && ranks[0] != '\0')
        rc = rank_set_parse(&set->ranks, ranks) == -ENOMEM ? -ENOMEM
             : set->ranks.n == 0                           ? -EPROTO
                                                           : 0;
    for (size_t i = 0; i < json_array_size(named) && rc == 0; i++) {
        int number, pid;
        rc = ras_parse_pair(json_array_get(named, i), -1, &number, &pid)
                 ? nccl_ras_add_named(ret, set, number, pid)
                 : -EPROTO;
    }
    return rc;
}

static int ras_parse_kind(const char *name)
{
    for (int i = 0; name != NULL && i < NCCL_RAS_KIND_MAX; i++)
        if (strcmp(name, ras_kinds[i]) == 0)
            return i;
    return -EPROTO;
}

static int ras_parse_finding(struct nccl_ras *ret, const json_t *o, bool of_node)
{
    const int kind = ras_parse_kind(json_string_value(json_object_get(o, "kind")));
    const char *communicator = json_string_value(json_object_get(o, "communicator"));
    const char *operation = json_string_value(json_object_get(o, "operation"));
    const json_t *sets = json_object_get(o, "sets");
    if (kind < 0 || communicator == NULL || operation == NULL ||
        json_array_size(sets) > NCCL_RAS_SETS)
        return -EPROTO;
    struct nccl_ras_finding *f = nccl_ras_add(ret, (enum nccl_ras_kind)kind);
    if (f == NULL)
        return ret->n < NCCL_RAS_FINDINGS ? -ENOMEM : -EPROTO;
    nccl_ras_copy_name(f->communicator, communicator, strlen(communicator));
    nccl_ras_copy_name(f->operation, operation, strlen(operation));
    int rc = ras_parse_int(json_object_get(o, "size"), 0, &f->size) ? 0 : -EPROTO;
    for (size_t i = 0; i < json_array_size(sets) && rc == 0; i++)
        rc = ras_parse_set(ret, f, json_array_get(sets, i), of_node);
    return rc;
}

static int ras_parse_processes(struct nccl_ras *ret, const json_t *list, int first, int workers)
{
    const size_t most = workers < 0 ? SIZE_MAX : NCCL_RAS_PROCESSES * (size_t)workers;
    int rc = json_array_size(list) <= most ? 0 : -EPROTO;
    for (size_t i = 0; i < json_array_size(list) && rc == 0 && workers >= 0; i++) {
        int rank, pid;
        if (!ras_parse_pair(json_array_get(list, i), 0, &rank, &pid))
            rc = -EPROTO;
        else if (rank < first || rank - first >= workers)
            rc = -EPERM;
        else
            rc = nccl_ras_add_process(ret, rank, pid);
    }
    return rc;
}

int nccl_ras_parse(struct nccl_ras *ret, const json_t *o, int first, int workers)
{
    const json_t *findings = json_object_get(o, "findings");
    if (o == NULL || json_is_null(o))
        return 0;
    ret->answered = json_is_true(json_object_get(o, "answered"));
    int rc = ras_parse_int(json_object_get(o, "communicators"), 0, &ret->communicators) ? 0
                                                                                        : -EPROTO;
    for (size_t i = 0; i < json_array_size(findings) && rc == 0; i++)
        rc = ras_parse_finding(ret, json_array_get(findings, i), workers >= 0);
    if (rc == 0)
        rc = ras_parse_processes(ret, json_object_get(o, "processes"), first, workers);
    return rc;
}
