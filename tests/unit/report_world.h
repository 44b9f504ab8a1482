/* A report of a small job, for tests. */
#ifndef REPORT_WORLD_H
#define REPORT_WORLD_H

#include "base/auto.h"
#include "report/report.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)
#define START (100 * S)

static inline struct report *fresh(int max_restarts)
{
    struct report *r;
    const struct report_cfg cfg = {.job_id = "slurm-7.0",
                                   .nnodes = 2,
                                   .max_restarts = max_restarts,
                                   .start_ns = START,
                                   .start_real_ns = UINT64_C(1795264803) * S};
    assert_int_equal(report_new(&r, &cfg), 0);
    return r;
}

static inline struct report_exit failing(int rank, uint64_t at)
{
    return (struct report_exit){.rank = rank,
                                .local_rank = rank % 2,
                                .pid = 4000 + rank,
                                .code = 1,
                                .at_ns = at,
                                .node = rank < 2 ? "node1" : "node2"};
}

static inline char *text_of(const struct report *r)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(REPORT_TEXT_MAX);
    assert_int_equal(report_text(r, &out), 0);
    return dd_buf_steal(&out);
}

static inline json_t *json_of(const struct report *r, bool brief)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(REPORT_JSON_MAX);
    assert_int_equal(report_json(r, brief, &out), 0);
    json_t *o = json_loadb((const char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    return o;
}

#endif
