#include "report/culprit.h"

#include "base/auto.h"
#include "report/causes.h"
#include "report/report_inner.h"
#include "report/stack_frames.h"
#include "report/suspects.h"

#include <string.h>

/* True if other workers were silent, too. Workers that end after the stop of the round do not count
 * as failed; if the whole job hung, however, all workers that had not exited with 0 were silent. */
static bool is_one_of_several_silent(const struct report *r, const struct report_exit *e)
{
    return r->nfailed > 1 || (failure_is_job_hung(e->error) && r->world_size - r->ends.left > 1);
}

/* Judge by the failures alone. Any of several silent workers may be the one that holds up the
 * others. */
static enum report_blame report_blame(const struct report *r, const struct report_exit *e)
{
    const struct failure_cause *c = failure_cause_find(e);
    const int flags = c != NULL ? c->flags : 0;
    if ((flags & CAUSE_HANG) != 0 && is_one_of_several_silent(r, e))
        return REPORT_BLAME_UNKNOWN;
    return (flags & CAUSE_CASCADE) != 0  ? REPORT_BLAME_UNKNOWN
           : (flags & CAUSE_SENDER) != 0 ? REPORT_BLAME_SENDER
                                         : REPORT_BLAME_WORKER;
}

static int count_cascades(const struct report *r)
{
    int n = 0;
    for (int i = 0; i < r->nkept; i++)
        n += failure_is_cascade(&r->exits[i]);
    return n;
}

/* True if a rank had exited with 0 when the others noticed that a peer was lost. No rank had failed
 * before, since e is the first failure and a consequence of a lost peer. */
static bool is_left_alone(const struct report *r, const struct report_exit *e)
{
    return failure_is_cascade(e) && r->ends.first_node != NULL && r->ends.first_ns < e->at_ns;
}

static int put_early_exit(const struct report *r, struct rank_set *ret, struct dd_buf *out)
{
    const struct report_ends *n = &r->ends;
    int rc = rank_set_add(ret, n->first_rank, n->first_rank);
    if (rc == 0)
        rc = dd_buf_printf(out, "rank %d on %s, ", n->first_rank, n->first_node);
    if (rc == 0 && n->left > 1)
        rc = dd_buf_printf(out, "the first of %d ranks that had", n->left);
    else if (rc == 0)
        rc = dd_buf_puts(out, "which had");
    return rc < 0 ? rc : dd_buf_puts(out, " exited with 0 before the others lost a peer");
}

/* True if all failures have the message of e: the program or the environment is the cause, and no
 * rank differs from the others. */
static bool have_failed_alike(const struct report *r, const struct report_exit *e)
{
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    DD_AUTO(buf) struct dd_buf other = DD_BUF_INIT(REPORT_TEXT_MAX);
    bool alike = r->nkept == r->nfailed && report_why(e, &why) == 0 && why.len > 0;
    for (int i = 0; alike && i < r->nkept; i++) {
        dd_buf_clear(&other);
        alike = report_why(&r->exits[i], &other) == 0 && other.len == why.len &&
                memcmp(other.data, why.data, why.len) == 0;
    }
    return alike;
}

/* True if this rank hung after all others had exited with 0. */
static bool is_last_one(const struct report *r, const struct report_exit *e)
{
    return failure_is_hang(e) && r->nfailed == 1 && r->world_size - r->ends.left == 1;
}

/* Append why the failure e explains those of the others. */
static int put_first_failure(const struct report *r, const struct report_exit *e,
                             struct dd_buf *out)
{
    const int earlier = (int)(e - r->exits);
    const int cascades = count_cascades(r);
    int rc = dd_buf_printf(out, "rank %d on %s, ", e->rank, e->node);
    if (rc == 0 && earlier > 0)
        rc = dd_buf_printf(out,
                           "the first failure that does not follow from a lost or late peer (%d "
                           "earlier %s)",
                           earlier, earlier > 1 ? "ones do" : "one does");
    else if (rc == 0 && is_last_one(r, e))
        rc = dd_buf_puts(out, "the only rank that had not exited");
    else if (rc == 0 && r->nfailed == 1)
        rc = dd_buf_printf(out, "the only rank that %s",
                           failure_is_hang(e) ? "hung" : "failed by itself");
    else if (rc == 0)
        rc = dd_buf_printf(out, "the first of %d ranks to fail%s", r->nfailed,
                           have_failed_alike(r, e) ? ", all for the same reason" : "");
    if (rc == 0 && earlier == 0 && cascades > 0)
        rc = dd_buf_printf(out, "; %d of the other failures only follow%s from a lost or late peer",
                           cascades, cascades > 1 ? "" : "s");
    return rc;
}

int report_culprit_why(const struct report *r, const struct report_exit *e, struct rank_set *ret,
                       enum report_blame *ret_blame, struct dd_buf *out)
{
    const int found = report_suspects(r, e, ret, out);
    *ret_blame = found > 0 ? REPORT_BLAME_WORKER : report_blame(r, e);
    if (found != 0)
        return found < 0 ? found : 0;
    rank_set_done(ret);
    if (is_left_alone(r, e)) {
        *ret_blame = REPORT_BLAME_WORKER;
        return put_early_exit(r, ret, out);
    }
    if (*ret_blame == REPORT_BLAME_SENDER)
        return dd_buf_printf(out, "the sender of the signal, not rank %d or its node", e->rank);
    if (*ret_blame == REPORT_BLAME_UNKNOWN && failure_is_cascade(e))
        return dd_buf_printf(out,
                             "unknown: rank %d was the first to report a lost or late peer, and no "
                             "rank has reported an error of its own",
                             e->rank);
    if (*ret_blame == REPORT_BLAME_UNKNOWN && report_is_of_job(e))
        return dd_buf_puts(
            out,
            "unknown: process states, stacks, flight records and NCCL do not show which rank the "
            "others waited for");
    if (*ret_blame == REPORT_BLAME_UNKNOWN)
        return dd_buf_printf(
            out, "unknown: several ranks showed no activity, rank %d is one of them", e->rank);
    return put_first_failure(r, e, out);
}

static bool has_native_frames(const struct report *r)
{
    struct stack_frame f;
    for (size_t i = 0; i < r->stacks.n; i++) {
        const struct stack *s = &r->stacks.v[i].stack;
        for (const char *at = stack_text(s->frames); stack_frame_next(&at, &f);)
            if (s->kind == STACK_KERNEL || stack_frame_is_native(&f))
                return true;
    }
    return false;
}

/* True if the report names ranks for which e waited. */
static bool names_suspects(const struct report *r, const struct report_exit *e)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    return report_suspects(r, e, &ranks, &why) > 0;
}

/* True if the ranks hung in MPI, and only native frames could show for which one they waited. */
static bool wants_native_frames(const struct report *r, const struct report_exit *e)
{
    return strstr(e->error, FAILURE_CAUSE_IN_MPI) != NULL && !has_native_frames(r) &&
           !names_suspects(r, e);
}

const struct failure_cause *report_cause(const struct report *r, const struct report_exit *e)
{
    const struct failure_cause *own = failure_cause_find(e);
    if (report_suspects_load(r, e))
        return failure_cause_stuck_loader();
    if (is_left_alone(r, e) && !names_suspects(r, e))
        return failure_cause_early_exit();
    return failure_is_hang(e) && wants_native_frames(r, e) ? failure_cause_hung_in_mpi() : own;
}

const char *report_tip(const struct report *r, const struct report_exit *e)
{
    const struct failure_cause *c = report_cause(r, e);
    if (c == NULL)
        return NULL;
    if (c == failure_cause_find(e) && failure_is_hang(e) && r->stacks.n == 0)
        return "rerun with --stacks=on-failure --stacks-native to see what each rank executes";
    if (is_last_one(r, e))
        return "no other rank waited for it: its stack shows what it executes; rerun with "
               "--stacks-native for native frames";
    return c->tip_for_culprit != NULL && names_suspects(r, e) ? c->tip_for_culprit : c->tip;
}
