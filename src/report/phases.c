#include "report/phases.h"

#include "base/num.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FIELDS = 5, RANK_MAX = 1 << 28, VALUE_MAX = 1 << 16 };

/* 'ddctl timeline' prints the phases in this order. */
const struct phase_row phase_rows[PHASE_KIND_MAX] = {
    [PHASE_BOOTSTRAP] = {"bootstrap", .of_rank = false},
    [PHASE_START] = {"start", .of_rank = false},
    [PHASE_DAEMON] = {"daemon", .of_rank = false},
    [PHASE_RESOLVE] = {"resolve", .of_rank = false},
    [PHASE_SEARCH] = {"search", .of_rank = false},
    [PHASE_CONNECT] = {"connect", .of_rank = false},
    [PHASE_KEY] = {"key", .of_rank = false},
    [PHASE_TLS] = {"tls", .of_rank = false},
    [PHASE_JOIN] = {"join", .of_rank = false},
    [PHASE_PLAN] = {"plan", .of_rank = false},
    [PHASE_SPAWN] = {"spawn", .of_rank = false},
    [PHASE_STOP] = {"stop", .of_rank = false},
    [PHASE_RESTART] = {"restart", .of_rank = false},
    [PHASE_FIRST_STORE] = {"first-store", .instant = true},
    [PHASE_SPAWNED] = {"spawned", .of_rank = true, .instant = true},
    [PHASE_WORKER] = {"worker", .of_rank = true, .value = "code"},
    [PHASE_FIRST_OUTPUT] = {"first-output", .of_rank = true, .instant = true},
};

void phase_format(char out[PHASE_TEXT_MAX], const struct phase *p)
{
    (void)snprintf(out, PHASE_TEXT_MAX, "%s %d %lld %lld %d", phase_rows[p->kind].name, p->rank,
                   (long long)p->begin_ns, (long long)p->end_ns, p->value);
}

/* Split at single blanks into exactly FIELDS parts. */
static bool phase_split(char *text, char *parts[FIELDS])
{
    int n = 0;
    for (char *p = text; p != NULL && n < FIELDS; n++) {
        parts[n] = strsep(&p, " ");
        if (p == NULL)
            return n == FIELDS - 1;
    }
    return false;
}

static int phase_kind_of(const char *name)
{
    int kind = 0;
    while (kind < PHASE_KIND_MAX && strcmp(phase_rows[kind].name, name) != 0)
        kind++;
    return kind;
}

int phase_parse(struct phase *ret, const char *text)
{
    char copy[PHASE_TEXT_MAX];
    char *parts[FIELDS];
    struct phase p = {0};
    uint64_t begin;
    uint64_t end;
    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy) || !phase_split(copy, parts))
        return -EPROTO;
    const int kind = phase_kind_of(parts[0]);
    if (dd_num_int(parts[1], -1, RANK_MAX, &p.rank) < 0 ||
        dd_num_u64(parts[2], 0, INT64_MAX, &begin) < 0 ||
        dd_num_u64(parts[3], begin, INT64_MAX, &end) < 0 ||
        dd_num_int(parts[4], 0, VALUE_MAX, &p.value) < 0)
        return -EPROTO;
    if (kind == PHASE_KIND_MAX)
        return -ENOENT;
    if (phase_rows[kind].of_rank != (p.rank >= 0))
        return -EPROTO;
    p.kind = (enum phase_kind)kind;
    p.begin_ns = (int64_t)begin;
    p.end_ns = phase_rows[kind].instant ? p.begin_ns : (int64_t)end;
    *ret = p;
    return 0;
}
