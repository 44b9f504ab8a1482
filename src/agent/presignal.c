/* The warning that the allocation ends soon: each worker hears it once, those that have only just
 * been started when they have got so far that they listen. */
#include "agent/inner.h"

#include "base/io.h"
#include "worker/children.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOK_MS = 500 }; /* whether the rest listens now */

struct warning {
    struct agent *agent;
    struct event *tick;
    int sig;
    int left; /* workers that have not heard it */
    int n;
    bool heard[];
};

static bool hears(const struct warning *w, int local_rank)
{
    pid_t pid = worker_group_pid(w->agent->round->group, local_rank);
    struct pid_list one = {.v = &pid, .n = 1, .cap = 1};
    return pid > 0 && children_notify(&one, w->sig) > 0;
}

static void look(struct warning *w)
{
    const struct timeval tv = dd_timeval(LOOK_MS * DD_NS_PER_MS);
    if (w->agent->round->group == NULL)
        return;
    for (int i = 0; i < w->n; i++)
        if (!w->heard[i] && hears(w, i)) {
            w->heard[i] = true;
            w->left--;
        }
    if (w->left > 0)
        evtimer_add(w->tick, &tv);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    look(arg);
}

void warning_give(struct agent *a, int sig)
{
    int n = a->round->plan.local_size;
    if (a->round->group == NULL || a->state != AGENT_RUNNING || a->warning != NULL)
        return;
    struct warning *w = calloc(1, sizeof(*w) + (size_t)n * sizeof(w->heard[0]));
    if (w == NULL)
        return;
    *w = (struct warning){.agent = a, .sig = sig, .left = n, .n = n};
    a->warning = w;
    w->tick = evtimer_new(a->base, on_tick, w);
    if (w->tick != NULL)
        look(w);
}

void warning_over(struct agent *a)
{
    if (a->warning == NULL)
        return;
    if (a->warning->tick != NULL)
        event_free(a->warning->tick);
    free(DD_TAKE(a->warning));
}
