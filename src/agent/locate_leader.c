#include "agent/locate_leader.h"

#include "agent/agent.h"
#include "base/io.h"
#include "base/screen.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FIRST_REPORT_S = 5,
    REPORT_MAX_S = 60,
    ALL_REPORT = 8, /* up to this number of nodes, each node reports what it waits for */
};

struct locate_leader {
    const struct locate *where;
    struct link_find *find; /* NULL: no search */
    struct event *progress; /* periodic progress report */
    locate_status_f *status;
    const void *status_arg;
    uint64_t begun_ns; /* start of this search */
    bool reported;     /* as in struct locate_wait */
};

static void locate_leader_on_found(void *arg, struct link *link)
{
    struct locate_leader *l = arg;
    link_find_free(DD_TAKE(l->find));
    uplink_found(l->where->uplink, link);
}

static void locate_leader_on_cannot(void *arg, const char *why)
{
    struct locate_leader *l = arg;
    char text[LINK_WHY_MAX + 400];
    (void)snprintf(text, sizeof(text), "%s cannot connect to the job's daemon: %s",
                   l->where->loop->cfg->node_name, why);
    agent_fail(l->where->loop, text);
}

const char *locate_leader_status(const struct locate_leader *l)
{
    if (l->find != NULL)
        return link_find_status(l->find);
    return l->status != NULL ? l->status(l->status_arg) : NULL;
}

bool locate_leader_reports(const struct locate_wait *w)
{
    return w->nnodes <= ALL_REPORT || w->index <= 1 || !w->for_daemon ||
           (w->seconds >= LOCATE_ALONE_S && !w->reported);
}

static enum dd_log_level locate_leader_level(struct locate_leader *l)
{
    const struct locate_wait w = {
        .nnodes = l->where->alloc->nnodes,
        .index = l->where->alloc->index,
        .for_daemon = l->find != NULL && link_find_waits_for_daemon(l->find),
        .seconds = (dd_now_ns() - l->begun_ns) / DD_NS_PER_S,
        .reported = l->reported,
    };
    const bool reports = locate_leader_reports(&w);
    l->reported = l->reported || (w.for_daemon && reports && w.seconds >= LOCATE_ALONE_S);
    return reports ? DD_LOG_NOTICE : DD_LOG_INFO;
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct locate_leader *l = arg;
    uint64_t waited = (dd_now_ns() - l->where->loop->cfg->start_ns) / DD_NS_PER_S;
    struct timeval t = {.tv_sec = (time_t)(waited < FIRST_REPORT_S ? FIRST_REPORT_S
                                           : waited < REPORT_MAX_S ? waited
                                                                   : REPORT_MAX_S)};
    const char *status = locate_leader_status(l);
    if (status == NULL)
        return;
    /* report the reason here, since no daemon has been found that could report it */
    if (l->where->loop->cfg->cannot != NULL) {
        agent_fail(l->where->loop, l->where->loop->cfg->cannot);
        return;
    }
    evtimer_add(l->progress, &t);
    if (dd_screen_is_ours(l->where->loop->cfg->log->screen)) /* the status line shows the wait */
        return;
    char left[DD_DURATION_TEXT];
    agent_loop_time_left(l->where->loop, AM_SEEK_LIMIT, left);
    dd_log(l->where->loop->cfg->log, locate_leader_level(l),
           "waiting for the job's daemon: %s; gives up in %s", status, left);
}

int locate_leader_new(struct locate_leader **ret, const struct locate *where)
{
    struct locate_leader *l = *ret = calloc(1, sizeof(*l));
    if (l == NULL)
        return -1;
    l->where = where;
    l->progress = evtimer_new(where->loop->base, on_progress, l);
    return l->progress == NULL ? -1 : 0;
}

void locate_leader_begin(struct locate_leader *l, locate_status_f *status, const void *arg)
{
    const struct timeval first = {.tv_sec = FIRST_REPORT_S};
    l->begun_ns = dd_now_ns();
    l->reported = false;
    l->status = status;
    l->status_arg = arg;
    evtimer_add(l->progress, &first);
}

int locate_leader_connect(struct locate_leader *l, const struct link_find_cfg *cfg,
                          struct dd_err *err)
{
    struct link_find_cfg with = *cfg;
    with.cannot = locate_leader_on_cannot;
    link_find_free(DD_TAKE(l->find));
    return link_find_start(&l->find, l->where->loop->base, &with, locate_leader_on_found, l, err);
}

int locate_leader_start(struct locate_leader *l, const char *addr, struct dd_err *err)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    locate_find_cfg(l->where, &cfg, ports);
    if (addr != NULL) {
        cfg.host = addr;
        cfg.host_is_me = true;
        cfg.try_scontrol = false;
    }
    locate_leader_begin(l, NULL, NULL);
    return locate_leader_connect(l, &cfg, err);
}

bool locate_leader_listener(const struct locate_leader *l, enum link_listener *ret)
{
    if (l->find == NULL)
        return false;
    *ret = link_find_listener(l->find);
    return true;
}

void locate_leader_stop(struct locate_leader *l)
{
    link_find_free(DD_TAKE(l->find));
    evtimer_del(l->progress);
}

void locate_leader_free(struct locate_leader *l)
{
    if (l == NULL)
        return;
    link_find_free(l->find);
    if (l->progress != NULL)
        event_free(l->progress);
    free(l);
}
