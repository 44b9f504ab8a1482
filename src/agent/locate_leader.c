/* Find the first daemon, at the address of the leader: one search, until a daemon is found or the
 * search is stopped. */
#include "agent/inner.h"

#include "base/io.h"

enum { FIRST_REPORT_S = 5, REPORT_MAX_S = 60 };

static void locate_leader_on_found(void *arg, struct link *l)
{
    struct agent *a = arg;
    link_find_free(DD_TAKE(a->locate_leader.find));
    uplink_found(a->uplink, l);
}

const char *locate_leader_status(struct agent *a)
{
    if (a->locate_leader.find != NULL)
        return link_find_status(a->locate_leader.find);
    return a->locate_leader.status != NULL ? a->locate_leader.status(a) : NULL;
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    uint64_t waited = (dd_now_ns() - a->loop.cfg->start_ns) / DD_NS_PER_S;
    struct timeval t = {.tv_sec = (time_t)(waited < FIRST_REPORT_S ? FIRST_REPORT_S
                                           : waited < REPORT_MAX_S ? waited
                                                                   : REPORT_MAX_S)};
    const char *status = locate_leader_status(a);
    if (status == NULL)
        return;
    if (a->loop.cfg->cannot != NULL) { /* no daemon to report it to: log it here */
        agent_fail(&a->loop, a->loop.cfg->cannot);
        return;
    }
    dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "waiting for the job's daemon: %s", status);
    evtimer_add(a->locate_leader.progress, &t);
}

int locate_leader_new(struct agent *a)
{
    a->locate_leader.progress = evtimer_new(a->loop.base, on_progress, a);
    return a->locate_leader.progress == NULL ? -1 : 0;
}

void locate_leader_begin(struct agent *a, const char *(*status)(const struct agent *a))
{
    const struct timeval first = {.tv_sec = FIRST_REPORT_S};
    a->locate_leader.status = status;
    evtimer_add(a->locate_leader.progress, &first);
}

int locate_leader_connect(struct agent *a, const struct link_find_cfg *cfg, struct dd_err *err)
{
    link_find_free(DD_TAKE(a->locate_leader.find));
    return link_find_start(&a->locate_leader.find, a->loop.base, cfg, locate_leader_on_found, a,
                           err);
}

int locate_leader_start(struct agent *a, const char *addr, struct dd_err *err)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    locate_find_cfg(a, &cfg, ports);
    if (addr != NULL) {
        cfg.host = addr;
        cfg.host_is_me = true;
        cfg.try_scontrol = false;
    }
    locate_leader_begin(a, NULL);
    return locate_leader_connect(a, &cfg, err);
}

void locate_leader_stop(struct agent *a)
{
    link_find_free(DD_TAKE(a->locate_leader.find));
    if (a->locate_leader.progress != NULL)
        evtimer_del(a->locate_leader.progress);
}

void locate_leader_free(struct agent *a)
{
    locate_leader_stop(a);
    if (a->locate_leader.progress != NULL)
        event_free(DD_TAKE(a->locate_leader.progress));
}
