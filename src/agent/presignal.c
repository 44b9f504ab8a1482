#include "agent/presignal.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/children.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum { PRESIGNAL_LOOK_MS = 500 }; /* interval of checking for a handler */

struct presignal {
    const struct round *round;
    struct event *tick;
    int sig;  /* signal to deliver; 0: not received in this round */
    int left; /* workers still to be signalled */
    int n;
    bool got[];
};

/* Signal worker i if it catches the signal. */
static bool presignal_try(const struct presignal *p, int i)
{
    pid_t pid = worker_group_pid(p->round->group, i);
    struct pid_list one = {.v = &pid, .n = 1, .cap = 1};
    return pid > 0 && children_notify(&one, p->sig) > 0;
}

static void presignal_look(struct presignal *p)
{
    const struct timeval tv = dd_timeval(PRESIGNAL_LOOK_MS * DD_NS_PER_MS);
    if (p->round->group == NULL)
        return;
    for (int i = 0; i < p->n; i++)
        if (!p->got[i] && presignal_try(p, i)) {
            p->got[i] = true;
            p->left--;
        }
    if (p->left > 0)
        evtimer_add(p->tick, &tv);
}

static void presignal_on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    presignal_look(arg);
}

/* ---- hooks ---- */

static int presignal_prepare(void **state, const struct round *r, struct dd_err *err)
{
    int n = r->plan.local_size;
    struct presignal *p = *state = calloc(1, sizeof(*p) + (size_t)n * sizeof(p->got[0]));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->round = r;
    p->n = p->left = n;
    p->tick = evtimer_new(r->base, presignal_on_tick, p);
    return p->tick != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

static void presignal_message(void *state, const struct round *r, const struct round_message *m)
{
    struct presignal *p = state;
    (void)r;
    if (m->type != ROUND_PRESIGNAL || (p->sig != 0 && p->left > 0))
        return;
    p->sig = m->sig;
    p->left = p->n;
    memset(p->got, 0, (size_t)p->n * sizeof(p->got[0]));
    presignal_look(p);
}

static void presignal_end(void *state, const struct round *r)
{
    struct presignal *p = state;
    (void)r;
    if (p->tick != NULL)
        event_free(p->tick);
    free(p);
}

const struct round_feature presignal_feature = {
    .name = "presignal",
    .prepare = presignal_prepare,
    .message = presignal_message,
    .end = presignal_end,
};
