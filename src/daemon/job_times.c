#include "daemon/job_times.h"

void job_times_init(struct job_times *t, uint64_t start_ns, uint64_t taken_over_ns)
{
    *t = (struct job_times){.start_ns = start_ns, .stopped_at = taken_over_ns};
}

static void job_times_stop(struct job_times *t, uint64_t now)
{
    if (t->running_at != 0) {
        t->running_ns += now - t->running_at;
        t->stopped_at = now;
    }
    t->running_at = 0;
}

static void job_times_started(struct job_times *t, uint64_t now)
{
    if (t->stopped_at != 0)
        t->recovery_ns = now - t->stopped_at;
    else if (t->start_ns != 0 && t->startup_ns == 0)
        t->startup_ns = now - t->start_ns;
    t->running_at = now;
    t->stopped_at = 0;
}

void job_times_event(struct job_times *t, const struct journal_event *e)
{
    if (e->kind == JOURNAL_STARTED)
        job_times_started(t, e->now_ns);
    else if (e->kind == JOURNAL_STOPPING || e->kind == JOURNAL_ROUND || e->kind == JOURNAL_FINISH)
        job_times_stop(t, e->now_ns);
    else if (e->kind == JOURNAL_LEAVE)
        t->lost_nodes += !t->finished;
    else if (e->kind == JOURNAL_EXIT)
        t->failed_workers += e->by_itself;
    if (e->kind == JOURNAL_FINISH) {
        t->finished = true;
        t->code = e->code;
    }
}

uint64_t job_times_running(const struct job_times *t, uint64_t now_ns)
{
    return t->running_ns + (t->running_at != 0 ? now_ns - t->running_at : 0);
}
