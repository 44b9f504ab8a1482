#include "report/nccl_ras.h"

#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RAS_MISSING = 1 << 16 /* a larger set of ranks is not searched for culprits */ };

/* ---- content ---- */

void nccl_ras_copy_name(char out[NCCL_RAS_NAME], const char *text, size_t len)
{
    size_t n = 0;
    for (; n < len && n + 1 < NCCL_RAS_NAME && text[n] != '\0'; n++)
        out[n] = iscntrl((unsigned char)text[n]) ? '?' : text[n];
    out[n] = '\0';
    (void)dd_utf8_clean(out);
}

struct nccl_ras_finding *nccl_ras_add(struct nccl_ras *s, enum nccl_ras_kind kind)
{
    struct nccl_ras_finding *v = s->n < NCCL_RAS_FINDINGS ? realloc(s->v, (s->n + 1) * sizeof(*v))
                                                          : NULL;
    if (v == NULL)
        return NULL;
    s->v = v;
    v[s->n] = (struct nccl_ras_finding){.kind = kind};
    return &v[s->n++];
}

int nccl_ras_add_named(struct nccl_ras *s, struct nccl_ras_set *set, int number, int pid)
{
    if (s->named >= NCCL_RAS_NAMED)
        return 0;
    struct nccl_ras_named *v = realloc(set->v, (set->n + 1) * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    set->v = v;
    v[set->n++] = (struct nccl_ras_named){.number = number, .pid = pid};
    s->named++;
    return 0;
}

int nccl_ras_add_process(struct nccl_ras *s, int rank, int pid)
{
    struct nccl_ras_process *v = realloc(s->processes, (s->nprocesses + 1) * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    s->processes = v;
    v[s->nprocesses++] = (struct nccl_ras_process){.rank = rank, .pid = pid};
    return 0;
}

static void ras_done_findings(struct nccl_ras *s)
{
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->v[i].nsets; k++) {
            free(s->v[i].sets[k].v);
            rank_set_done(&s->v[i].sets[k].ranks);
        }
    free(s->v);
    s->v = NULL;
    s->n = s->named = 0;
}

void nccl_ras_done(struct nccl_ras *s)
{
    ras_done_findings(s);
    free(s->processes);
    *s = (struct nccl_ras){0};
}

/* ---- merging ---- */

static int ras_add_set(struct rank_set *to, const struct rank_set *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = rank_set_add(to, from->v[i].first, from->v[i].last);
    return rc;
}

static int ras_copy_finding(struct nccl_ras *to, const struct nccl_ras_finding *from)
{
    struct nccl_ras_finding *f = nccl_ras_add(to, from->kind);
    if (f == NULL)
        return -ENOMEM;
    *f = *from;
    for (int i = 0; i < f->nsets; i++) {
        f->sets[i].v = NULL;
        f->sets[i].n = 0;
        f->sets[i].ranks = (struct rank_set){0};
    }
    int rc = 0;
    for (int i = 0; i < f->nsets && rc == 0; i++) {
        rc = ras_add_set(&f->sets[i].ranks, &from->sets[i].ranks);
        for (size_t k = 0; k < from->sets[i].n && rc == 0; k++)
            rc = nccl_ras_add_named(to, &f->sets[i], from->sets[i].v[k].number,
                                    from->sets[i].v[k].pid);
    }
    return rc;
}

int nccl_ras_merge(struct nccl_ras *to, const struct nccl_ras *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->nprocesses && rc == 0; i++)
        rc = nccl_ras_add_process(to, from->processes[i].rank, from->processes[i].pid);
    if (!from->answered || (to->answered && to->communicators >= from->communicators))
        return rc;
    ras_done_findings(to);
    to->answered = true;
    to->communicators = from->communicators;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = ras_copy_finding(to, &from->v[i]);
    return rc;
}

/* ---- ranks of the job ---- */

static int ras_by_pid(const void *x, const void *y)
{
    const struct nccl_ras_process *a = x;
    const struct nccl_ras_process *b = y;
    return a->pid != b->pid ? (a->pid > b->pid) - (a->pid < b->pid)
                            : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Return the index of the first process whose PID is at least pid. */
static size_t ras_find_pid(const struct nccl_ras *s, int pid)
{
    size_t from = 0, to = s->nprocesses;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (s->processes[middle].pid < pid)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Return the rank in the job of a rank that NCCL has named; -1: unknown. Nodes may have processes
 * of the same PID, and not all processes are known. In a communicator of all ranks, the number is
 * the rank in the job, unless only other ranks are known to have the PID: then either may be wrong.
 */
static int ras_rank(const struct nccl_ras *s, const struct nccl_ras_named *named, bool world)
{
    const bool numbered = world && named->number >= 0;
    int rank = -1;
    bool several = false;
    for (size_t i = ras_find_pid(s, named->pid);
         i < s->nprocesses && s->processes[i].pid == named->pid; i++) {
        if (numbered && s->processes[i].rank == named->number)
            return named->number;
        several = several || (rank >= 0 && s->processes[i].rank != rank);
        rank = s->processes[i].rank;
    }
    if (numbered)
        return rank < 0 ? named->number : -1;
    return several ? -1 : rank;
}

static int ras_resolve_set(const struct nccl_ras *s, struct nccl_ras_set *set, bool world)
{
    size_t left = 0;
    int rc = 0;
    for (size_t i = 0; i < set->n && rc == 0; i++) {
        const int rank = ras_rank(s, &set->v[i], world);
        if (rank >= 0)
            rc = rank_set_add(&set->ranks, rank, rank);
        else
            set->v[left++] = set->v[i];
    }
    set->n = left;
    return rc;
}

static int ras_add_others(struct rank_set *to, const struct rank_set *known, int world_size)
{
    int next = 0, rc = 0;
    for (size_t i = 0; i <= known->n && rc == 0; i++) {
        const int end = i < known->n ? known->v[i].first : world_size;
        if (end > next)
            rc = rank_set_add(to, next, end - 1);
        next = i < known->n ? known->v[i].last + 1 : next;
    }
    return rc;
}

/* NCCL does not list the ranks of the largest set. In a communicator of all ranks, these are the
 * ranks that are in no other set. */
static int ras_complete(struct nccl_ras_finding *f, int world_size)
{
    DD_AUTO(rank_set) struct rank_set known = {0};
    struct nccl_ras_set *rest = NULL;
    int rc = 0;
    for (int i = 0; i < f->nsets && rc == 0; i++) {
        struct nccl_ras_set *set = &f->sets[i];
        if (rank_set_count(&set->ranks) == (size_t)set->count)
            rc = ras_add_set(&known, &set->ranks);
        else if (rest != NULL || set->n > 0 || set->ranks.n > 0)
            return 0;
        else
            rest = set;
    }
    const size_t n = rank_set_count(&known);
    if (rc < 0 || rest == NULL || n + (size_t)rest->count != (size_t)world_size ||
        (known.n > 0 && known.v[known.n - 1].last >= world_size))
        return rc;
    return ras_add_others(&rest->ranks, &known, world_size);
}

int nccl_ras_resolve(struct nccl_ras *s, int world_size)
{
    int rc = 0;
    if (s->nprocesses > 1)
        qsort(s->processes, s->nprocesses, sizeof(s->processes[0]), ras_by_pid);
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        struct nccl_ras_finding *f = &s->v[i];
        const bool world = f->size == world_size && world_size > 0;
        for (int k = 0; k < f->nsets && rc == 0; k++)
            rc = ras_resolve_set(s, &f->sets[k], world);
        if (rc == 0 && world && (f->kind == NCCL_RAS_COUNTS || f->kind == NCCL_RAS_STATUS))
            rc = ras_complete(f, world_size);
    }
    free(s->processes);
    s->processes = NULL;
    s->nprocesses = 0;
    return rc;
}

/* ---- the ranks for which the others wait ---- */

static bool ras_is_complete(const struct nccl_ras_set *set)
{
    return rank_set_count(&set->ranks) == (size_t)set->count;
}

/* False for operations between two ranks, of which ranks of a communicator may launch different
 * numbers. */
static bool ras_is_collective(const struct nccl_ras_finding *f)
{
    static const char *const words[] = {"Send", "Recv", "Put", "Get", "Signal"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(f->operation, words[i]) != NULL)
            return false;
    return f->kind == NCCL_RAS_COUNTS;
}

static uint64_t ras_last_operation(const struct nccl_ras_finding *f)
{
    uint64_t last = 0;
    for (int i = 0; i < f->nsets; i++)
        last = f->sets[i].operation > last ? f->sets[i].operation : last;
    return last;
}

/* Find the ranks that are behind others. False if there are none, if they are more than half of the
 * communicator, or if not all of them are known. */
static bool ras_behind(const struct nccl_ras_finding *f, size_t *ret_n, struct rank_set *ret)
{
    const uint64_t last = ras_last_operation(f);
    size_t counted = 0, behind = 0;
    for (int i = 0; i < f->nsets; i++) {
        const struct nccl_ras_set *set = &f->sets[i];
        counted += (size_t)set->count;
        if (set->operation == last)
            continue;
        if (!ras_is_complete(set) || ras_add_set(ret, &set->ranks) < 0)
            return false;
        behind += (size_t)set->count;
    }
    *ret_n = behind;
    return behind > 0 && 2 * behind <= counted && rank_set_count(ret) == behind;
}

static int ras_add_waiting(const struct nccl_ras_finding *f, struct rank_set *to)
{
    const uint64_t last = ras_last_operation(f);
    int rc = 0;
    for (int i = 0; i < f->nsets && rc == 0; i++)
        if (f->sets[i].operation == last)
            rc = ras_add_set(to, &f->sets[i].ranks);
    return rc;
}

static int ras_subtract(struct rank_set *to, const struct rank_set *from,
                        const struct rank_set *without)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rank_set_count(from) <= RAS_MISSING; i++)
        for (int rank = from->v[i].first; rank <= from->v[i].last && rc == 0; rank++)
            if (!rank_set_has(without, rank))
                rc = rank_set_add(to, rank, rank);
    return rc;
}

/* Append what `ranks` have launched, according to the first finding in which the first of these
 * ranks is behind. */
static int ras_put_behind(const struct nccl_ras *s, const struct rank_set *ranks,
                          struct dd_buf *out)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct nccl_ras_finding *f = &s->v[i];
        for (int k = 0; ras_is_collective(f) && k < f->nsets; k++) {
            const struct nccl_ras_set *set = &f->sets[k];
            if (set->operation == ras_last_operation(f) ||
                !rank_set_has(&set->ranks, ranks->v[0].first))
                continue;
            return dd_buf_printf(
                out, "ha%s launched %llu %s operation%s of NCCL communicator %s, while %s at %llu",
                rank_set_count(ranks) == 1 ? "s" : "ve", (unsigned long long)set->operation,
                f->operation[0] != '\0' ? f->operation : "collective",
                set->operation == 1 ? "" : "s", f->communicator,
                f->size == 2 ? "the other rank is" : "others are",
                (unsigned long long)ras_last_operation(f));
        }
    }
    return 0;
}

/* Select the ranks that are behind, except those that wait for a rank in another communicator. */
static int ras_missing_behind(const struct nccl_ras *s, struct rank_set *ret, struct dd_buf *out)
{
    DD_AUTO(rank_set) struct rank_set all = {0};
    DD_AUTO(rank_set) struct rank_set waiting = {0};
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        DD_AUTO(rank_set) struct rank_set behind = {0};
        size_t n = 0;
        if (!ras_is_collective(&s->v[i]) || !ras_behind(&s->v[i], &n, &behind))
            continue;
        rc = ras_add_set(&all, &behind);
        if (rc == 0)
            rc = ras_add_waiting(&s->v[i], &waiting);
    }
    if (rc == 0)
        rc = ras_subtract(ret, &all, &waiting);
    if (rc < 0 || ret->n == 0)
        return rc;
    rc = ras_put_behind(s, ret, out);
    return rc < 0 ? rc : 1;
}

static int ras_missing_silent(const struct nccl_ras *s, const struct rank_set *ended,
                              struct rank_set *ret, struct dd_buf *out)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        const struct nccl_ras_finding *f = &s->v[i];
        if (f->kind == NCCL_RAS_SILENT || f->kind == NCCL_RAS_DEAD)
            for (int k = 0; k < f->nsets && rc == 0; k++)
                rc = ras_is_complete(&f->sets[k]) ? ras_subtract(ret, &f->sets[k].ranks, ended) : 0;
    }
    if (rc < 0 || ret->n == 0)
        return rc;
    const bool one = rank_set_count(ret) == 1;
    rc = dd_buf_printf(out, "do%s not answer NCCL's RAS threads on other ranks", one ? "es" : "");
    return rc < 0 ? rc : 1;
}

int nccl_ras_missing(const struct nccl_ras *s, int world_size, const struct rank_set *ended,
                     struct rank_set *ret, struct dd_buf *out)
{
    const size_t before = out->len;
    int rc = ras_missing_silent(s, ended, ret, out);
    if (rc == 0)
        rc = ras_missing_behind(s, ret, out);
    if (rc > 0 && 2 * rank_set_count(ret) <= (size_t)world_size)
        return 1;
    out->len = before;
    rank_set_done(ret);
    return rc < 0 ? rc : 0;
}
